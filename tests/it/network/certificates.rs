//! Certificates: the name is proven each time, by whom the policy trusts, and nothing is sent before that.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use oncegate_tests::harness::root;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use super::Scene;

fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures/tls").join(name)
}

/// What came through one finished handshake.
#[derive(Clone, Debug)]
struct Came {
    resumed: bool,
    tls13: bool,
    request: String,
}

/// An https server with one of the certificates, which can be changed.
struct Secure {
    address: SocketAddr,
    certificate: Arc<Mutex<&'static str>>,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Secure {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let secure = Self { address, certificate: Arc::new(Mutex::new("good.pem")), came: Arc::default() };
        let (certificate, came) = (Arc::clone(&secure.certificate), Arc::clone(&secure.came));
        thread::spawn(move || {
            let mut shared: Option<(&str, Arc<ServerConfig>)> = None;
            for stream in listener.incoming().flatten() {
                let name = *certificate.lock().unwrap_or_else(PoisonError::into_inner);
                // One configuration as long as the certificate stays, so that its tickets would be taken again.
                let config = match &shared {
                    Some((known, config)) if *known == name => Arc::clone(config),
                    _ => config(name),
                };
                shared = Some((name, Arc::clone(&config)));
                // A handshake that the host gives up is no request.
                if let Ok(one) = serve(stream, config) {
                    came.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                }
            }
        });
        secure
    }

    fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn config(certificate: &str) -> Arc<ServerConfig> {
    let chain = vec![CertificateDer::from_pem_file(fixture(certificate)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(fixture("leaf.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.max_early_data_size = 16 << 10;
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(64);
    Arc::new(config)
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<Came> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes)? {
            0 => break,
            read => request.extend_from_slice(&bytes[..read]),
        }
    }
    let resumed = stream.conn.handshake_kind() != Some(HandshakeKind::Full);
    let tls13 = stream.conn.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(Came { resumed, tls13, request: String::from_utf8_lossy(&request).into_owned() })
}

/// The shop at this server, by a name that the policy pins, under these lines.
fn scene(secure: &Secure, lines: &str) -> Scene {
    let port = secure.address.port();
    Scene::with(&[], |policy, [shop, _]| {
        let url = format!("https://shop.test:{port}\"\n{lines}#\"");
        let policy = policy.replace(&format!("{}\"", shop.url()), &url);
        format!("{policy}\n[resolver.hosts]\n\"shop.test\" = [\"127.0.0.1\"]\n")
    })
}

fn trusting() -> String {
    format!("ca = \"{}\"\n", fixture("ca.pem").canonicalize().unwrap().display())
}

#[test]
fn a_private_certificate_is_trusted_where_the_policy_names_its_issuer() {
    let secure = Secure::start();
    let scene = scene(&secure, &trusting());
    for _ in 0..2 {
        let heard = scene.show("O-1");
        assert_eq!(heard["status"], "done", "{heard}: {}", scene.server.errors());
    }
    let came = secure.came();
    assert_eq!(came.len(), 2);
    for one in came {
        assert!(!one.resumed && one.tls13, "{one:?}");
        assert!(one.request.starts_with("GET /objects/O-1 HTTP/1.1\r\n"), "{one:?}");
    }
}

#[test]
fn a_certificate_that_proves_nothing_gets_no_request() {
    let secure = Secure::start();
    let scene = scene(&secure, &trusting());
    for (certificate, why) in [
        ("expired.pem", "expired"),
        ("early.pem", "not valid yet"),
        ("wrong-name.pem", "not valid for name"),
        ("other-issuer.pem", "UnknownIssuer"),
        ("self-signed.pem", "invalid peer certificate"),
    ] {
        *secure.certificate.lock().unwrap() = certificate;
        let heard = scene.show("O-1");
        assert_ne!(heard["status"], "done", "{certificate}: {heard}");
        scene.logs(why);
    }
    assert_eq!(secure.came().len(), 0, "{:?}", secure.came());
    // Only what the policy trusts for it counts: the public issuers do not know this one.
    let public = self::scene(&secure, "");
    *secure.certificate.lock().unwrap() = "good.pem";
    assert_ne!(public.show("O-1")["status"], "done");
    assert_eq!(secure.came().len(), 0, "{:?}", secure.came());
}

#[test]
fn a_file_of_issuers_that_cannot_be_read_trusts_nobody() {
    let secure = Secure::start();
    let empty = tempfile::NamedTempFile::new().unwrap();
    for (file, why) in
        [(empty.path().display().to_string(), "no certificate"), ("/nowhere/ca.pem".to_owned(), "No such file")]
    {
        let scene = scene(&secure, &format!("ca = \"{file}\"\n"));
        assert_ne!(scene.show("O-1")["status"], "done", "{file}");
        scene.logs(why);
    }
    assert_eq!(secure.came().len(), 0);
}
