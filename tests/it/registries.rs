//! Components in registries: a real one with logins, and one that lies in every way.

use std::fs;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::client::Client;
use oncegate_tests::debian;
use oncegate_tests::harness::{Guest, Harness, Options, Run, Running};
use oncegate_tests::provider::http::{self, Reply};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::agent::refund;

const LONG: Duration = Duration::from_secs(60);
const LOGIN: &str = "me:pass:word";

/// Debian's docker-registry on loopback, which knows one login. Dropping it ends it.
struct Registry {
    _running: Running,
    address: String,
    blobs: PathBuf,
}

impl Registry {
    fn start(folder: &Path) -> Self {
        debian::install(&["apache2-utils"]).unwrap();
        let program = debian::unpacked("docker-registry").unwrap().join("usr/bin/docker-registry");
        let (user, password) = LOGIN.split_once(':').unwrap();
        let logins = Run::of(Command::new("htpasswd").args(["-nbB", "-C", "4", user, password])).unwrap();
        assert_eq!(logins.code, Some(0), "{}", logins.stderr);
        fs::write(folder.join("logins"), logins.stdout.trim()).unwrap();
        let address = free_address();
        let blobs = folder.join("blobs");
        let config = format!(
            "version: 0.1\nlog: {{ level: warn }}\nstorage:\n  filesystem: {{ rootdirectory: {0} }}\nhttp: {{ addr: \"{address}\" }}\n\
             auth:\n  htpasswd: {{ realm: test, path: {1} }}\n",
            blobs.display(),
            folder.join("logins").display()
        );
        fs::write(folder.join("registry.yml"), config).unwrap();
        let running = Running::start(Command::new(program).arg("serve").arg(folder.join("registry.yml"))).unwrap();
        let started = Instant::now();
        while Client::new(&format!("http://{address}")).send("GET", "/v2/", &[], b"").is_err() {
            assert!(started.elapsed() < LONG, "no registry: {}", running.errors());
            thread::sleep(Duration::from_millis(20));
        }
        Self { _running: running, address, blobs }
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn oncegate(harness: &Harness, login: Option<&str>, arguments: &[&str]) -> Run {
    let mut command = harness.command();
    command.args(arguments).arg("--registry-plain-http");
    for proxy in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    command.env("DOCKER_CONFIG", harness.folder());
    if let Some(login) = login {
        command.env("REGISTRY_LOGIN", login).args(["--registry-auth", "env:REGISTRY_LOGIN"]);
    }
    Run::of(&mut command).unwrap()
}

#[track_caller]
fn fails(run: &Run, why: &str) {
    assert_ne!(run.code, Some(0), "{}", run.stdout);
    assert!(run.stderr.contains(why), "not {why:?} in {}", run.stderr);
    assert!(!run.stderr.contains("pass:word"), "{}", run.stderr);
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// What `docker login` keeps.
fn docker_login(folder: &Path, registry: &str) {
    use base64::Engine;
    let auth = base64::prelude::BASE64_STANDARD.encode(LOGIN);
    let docker = json!({ "auths": { (registry): { "auth": auth } } });
    fs::write(folder.join("config.json"), docker.to_string()).unwrap();
}

/// `call oci://…` for one refund.
fn call(harness: &Harness, login: Option<&str>, reference: &str, id: &str) -> Run {
    let arguments = refund(id, "broken").to_string();
    oncegate(harness, login, &["call", reference, "issue-refund", "--json", "--args", &arguments])
}

#[test]
fn a_component_comes_from_a_registry_by_digest_and_with_its_signature() {
    let harness = Harness::new("refunds").unwrap();
    let registry = Registry::start(harness.folder());
    let component = harness.folder().join("refunds.wasm");
    fs::copy(harness.component(), &component).unwrap();
    let key = harness.folder().join("acme.key").display().to_string();
    let file = component.display().to_string();
    for arguments in [&["keygen", "--no-password", "-o", &key][..], &["sign", &file, "--key", &key]] {
        assert_eq!(harness.run(arguments).unwrap().code, Some(0));
    }
    let tagged = format!("oci://{}/tools/refunds:1", registry.address);
    // Without a login, and with a wrong one.
    for login in [None, Some("me:wrong")] {
        fails(&oncegate(&harness, login, &["push", &file, &tagged]), "refuses us");
        fails(&oncegate(&harness, login, &["pull", &tagged]), "refuses us");
    }
    let pushed = oncegate(&harness, Some(LOGIN), &["push", &file, &tagged, "--json"]);
    assert_eq!(pushed.code, Some(0), "{}", pushed.stderr);
    let pinned = pushed.json().unwrap()["reference"].as_str().unwrap().to_owned();

    // A tag is not run; the digest that it has now is.
    let refused = call(&harness, Some(LOGIN), &tagged, "R-1001");
    fails(&refused, &pinned);
    assert_eq!(harness.provider().count("refund").unwrap(), 0);
    let called = call(&harness, Some(LOGIN), &pinned, "R-1001");
    assert_eq!(called.status().unwrap(), "done", "{}{}", called.stdout, called.stderr);
    // Docker's own login does as well, and what is here already needs none.
    let pulled = harness.folder().join("pulled.wasm").display().to_string();
    docker_login(harness.folder(), &registry.address);
    let run = oncegate(&harness, None, &["pull", &tagged, "-o", &pulled, "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.json().unwrap()["reference"], pinned.as_str());
    fs::remove_file(harness.folder().join("config.json")).unwrap();
    assert_eq!(fs::read(&pulled).unwrap(), fs::read(&component).unwrap());
    let verified = harness.run(&["verify", &pulled, "--key", &format!("{key}.pub")]).unwrap();
    assert_eq!(verified.code, Some(0), "{}", verified.stdout);
    assert_eq!(call(&harness, None, &pinned, "R-1002").status().unwrap(), "done");
    let inspected = oncegate(&harness, None, &["inspect", &pinned, "--json"]).json().unwrap();
    assert_eq!(inspected["signature"]["state"], "unknown-key");

    // What is kept is private, and checked each time.
    let kept = harness.home().join("components");
    let files: Vec<PathBuf> = fs::read_dir(&kept).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        let bytes = fs::read(file).unwrap();
        fs::write(file, b"something else").unwrap();
        fails(&call(&harness, None, &pinned, "R-1003"), "refuses us");
        fs::write(file, bytes).unwrap();
    }
    assert_eq!(call(&harness, None, &pinned, "R-1003").status().unwrap(), "done");
    assert_eq!(harness.provider().count("refund").unwrap(), 3);

    // The registry's own disk: a blob that was changed there is not what was asked for.
    fs::remove_dir_all(&kept).unwrap();
    let hex = digest(&fs::read(&component).unwrap()).replace("sha256:", "");
    let blob = registry.blobs.join(format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]));
    let mut bytes = fs::read(&blob).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&blob, bytes).unwrap();
    fails(&call(&harness, Some(LOGIN), &pinned, "R-1004"), "sent another component");
    assert_eq!(harness.provider().count("refund").unwrap(), 3);
}

/// What a liar answers to a path.
type Lie = Arc<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

/// A server that answers with these bytes, and goes on for ever where they are none.
fn liar(lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lie = Arc::clone(&lie);
            // A client that has heard enough closes the connection.
            thread::spawn(move || tell(stream, &lie).ok());
        }
    });
    address
}

fn tell(mut stream: TcpStream, lie: &Lie) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = http::read_first_line(&mut reader)? {
        let mut request = request;
        http::read_rest(&mut reader, &mut request)?;
        if request.path == "/v2/" {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")?;
            continue;
        }
        match lie(&request.path) {
            Some(body) => {
                let reply = Reply { status: 200, headers: Vec::new(), body };
                stream.write_all(&reply.head(Some(reply.body.len())))?;
                stream.write_all(&reply.body)?;
            }
            None => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                let piece = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
                loop {
                    stream.write_all(&piece)?;
                }
            }
        }
    }
    Ok(())
}

fn manifest(digest: &str, size: u64) -> Value {
    json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": digest, "size": 2 },
        "layers": [{ "mediaType": "application/wasm", "digest": digest, "size": size }],
    })
}

#[test]
fn a_registry_that_lies_is_found_out_and_not_believed() {
    let harness = Harness::with(Guest::example("refunds").unwrap(), Options::default()).unwrap();
    let component = fs::read(harness.component()).unwrap();
    let (name, size) = (digest(&component), component.len() as u64);
    let answers = |manifest: Vec<u8>, blob: Option<Vec<u8>>| -> Lie {
        Arc::new(move |path| if path.contains("/manifests/") { Some(manifest.clone()) } else { blob.clone() })
    };
    let right = manifest(&name, size).to_string().into_bytes();
    let run = |lie: Lie, wanted: &str| {
        let reference = format!("oci://{}/tools/refunds@{wanted}", liar(lie));
        call(&harness, None, &reference, "R-1001")
    };
    // Another manifest than was asked for.
    fails(&run(answers(right.clone(), None), &digest(b"another")), "sent another manifest");
    // A manifest and a component without end.
    fails(&run(Arc::new(|_| None), &digest(&right)), "more than is taken");
    fails(&run(answers(right.clone(), None), &digest(&right)), "more than is taken");
    // Another component, one that was cut off, and one with something behind it.
    let other = fs::read(Guest::example("campaign").unwrap().component).unwrap();
    fails(&run(answers(right.clone(), Some(other)), &digest(&right)), "sent another component");
    let cut = component[..component.len() - 1].to_vec();
    fails(&run(answers(right.clone(), Some(cut)), &digest(&right)), "sent another component");
    let more = [&component[..], b"x"].concat();
    fails(&run(answers(right.clone(), Some(more)), &digest(&right)), "sent another component");
    // Manifests that name something else, or more than there can be.
    let huge = manifest(&name, u64::MAX).to_string().into_bytes();
    fails(&run(answers(huge.clone(), None), &digest(&huge)), "no component has more");
    let climbing = manifest("sha256:../../../policy", 1).to_string().into_bytes();
    fails(&run(answers(climbing.clone(), None), &digest(&climbing)), "no digest");
    let index = json!({ "schemaVersion": 2, "manifests": [] }).to_string().into_bytes();
    fails(&run(answers(index.clone(), None), &digest(&index)), "index of several");
    assert_eq!(harness.provider().count("refund").unwrap(), 0);
    // The same server with the truth: it was the lies that were refused.
    let honest = run(answers(right.clone(), Some(component.clone())), &digest(&right));
    assert_eq!(honest.status().unwrap(), "done", "{}", honest.stderr);
    assert_eq!(harness.provider().count("refund").unwrap(), 1);
}

#[test]
fn plain_http_is_spoken_only_where_it_is_asked_for_and_near() {
    let harness = Harness::new("refunds").unwrap();
    let far = oncegate(&harness, None, &["pull", "oci://registry.example/tools/refunds:1"]);
    assert_eq!(far.code, Some(2), "{}", far.stderr);
    fails(&far, "no loopback or private address");
    // Without the option the same address is spoken to with TLS, which it does not speak.
    let address = liar(Arc::new(|_| Some(b"{}".to_vec())));
    let run = harness.run(&["pull", &format!("oci://{address}/tools/refunds:1")]).unwrap();
    fails(&run, "cannot be fetched");
    let nameless = harness.run(&["call", "oci://refunds", "issue-refund"]).unwrap();
    assert_eq!(nameless.code, Some(2), "{}", nameless.stderr);
}
