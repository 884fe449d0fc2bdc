//! Proxies: the environment's are not used, the policy's is asked for a tunnel and learns nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::villain::{self, Villain, tag};
use super::{PAY_SECRET, SHOP_SECRET, Scene};

/// What it says to `CONNECT`; `Tunnel` means it.
#[derive(Clone, Copy)]
enum Say {
    Tunnel,
    Bytes(&'static str),
    /// So many bytes of a head without an end.
    Flood(usize),
    Close,
}

struct Proxy {
    address: SocketAddr,
    say: Arc<Mutex<Say>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            say: Arc::new(Mutex::new(Say::Tunnel)),
            heads: Arc::default(),
        };
        let (say, heads) = (Arc::clone(&proxy.say), Arc::clone(&proxy.heads));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (say, heads) = (Arc::clone(&say), Arc::clone(&heads));
                // What the host gives up is not this thread's business.
                thread::spawn(move || pass(stream, *say.lock().unwrap(), &heads).ok());
            }
        });
        proxy
    }

    fn say(&self, say: Say) {
        *self.say.lock().unwrap() = say;
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn pass(mut stream: TcpStream, say: Say, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    match say {
        Say::Tunnel => {
            let mut far = TcpStream::connect(head.split(' ').nth(1).unwrap_or_default())?;
            stream.write_all(b"HTTP/1.1 200 Connection established\r\nX-Via: us\r\n\r\n")?;
            let (mut near_in, mut far_out) = (stream.try_clone()?, far.try_clone()?);
            thread::spawn(move || std::io::copy(&mut near_in, &mut far_out));
            std::io::copy(&mut far, &mut stream).map(drop)?;
            stream.shutdown(std::net::Shutdown::Write)
        }
        Say::Bytes(text) => stream.write_all(text.as_bytes()),
        Say::Flood(bytes) => {
            let line = b"X-A: b\r\n".repeat(bytes / 8);
            stream.write_all(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &line].concat())
        }
        Say::Close => Ok(()),
    }
}

/// The policy with both providers behind the proxy.
fn behind(policy: &str, proxy: SocketAddr) -> String {
    let way = format!("egress = \"relayed\"\nproxy = \"http://{proxy}\"\nproxy-credential = \"corp\"\n");
    let credential = "[credential.corp]\nfrom = \"env:CORP_KEY\"\nattach = \"header:Proxy-Authorization\"\nformat = \"Basic {secret}\"\n";
    format!("{}\n{credential}", policy.replace("egress = \"direct\"\n", &way))
}

const CORP: &str = "Y29ycDpzd29yZGZpc2g=";

fn answering(scene: &Scene) {
    scene.shop.plays(|_, _| villain::json(200, "{}"));
    scene.pay.plays(|heard, _| match heard.method().as_str() {
        "GET" => villain::json(503, "{}"),
        _ => villain::json(200, &format!(r#"{{"object":"effect","id":"re_{}"}}"#, tag(heard))),
    });
}

fn posts(villain: &Villain) -> usize {
    villain.heard().iter().filter(|one| one.method() == "POST").count()
}

#[test]
fn the_environments_proxies_are_not_used() {
    let recorder = Villain::start();
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let environment: Vec<(&str, String)> = names.iter().map(|name| (*name, recorder.url())).collect();
    let scene = Scene::with(&environment, |policy, _| policy);
    answering(&scene);
    assert_eq!(scene.show("O-1")["status"], "done");
    assert_eq!(scene.act("E-1")["status"], "done");
    assert_eq!(recorder.connections(), 0, "{:?}", recorder.heard());
}

#[test]
fn the_policys_proxy_makes_a_tunnel_and_sees_its_own_credential_only() {
    let proxy = Proxy::start();
    let scene = Scene::with(&[("CORP_KEY", CORP.to_owned())], |policy, _| behind(&policy, proxy.address));
    answering(&scene);
    assert_eq!(scene.show("O-1")["status"], "done");
    let heard = scene.act("E-1");
    assert_eq!(heard["status"], "done", "{heard}");
    assert_eq!(posts(&scene.pay), 1);
    let (shop, pay) = (scene.shop.address(), scene.pay.address());
    let want =
        |to: SocketAddr| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nProxy-Authorization: Basic {CORP}\r\n\r\n");
    let heads = proxy.heads();
    assert_eq!(heads[..2], [want(shop), want(pay)]);
    for one in scene.shop.heard().iter().chain(&scene.pay.heard()) {
        assert!(one.headers("proxy-authorization").is_empty() && one.target().starts_with('/'), "{}", one.text());
    }
    let explained =
        scene.harness.run(&["policy", "explain", scene.harness.component().to_str().unwrap(), "create"]).unwrap();
    let said = format!("{}{}", explained.stdout, explained.stderr);
    assert!(said.contains("relayed") && said.contains(&format!("the proxy http://{}", proxy.address)), "{said}");
}

#[test]
fn a_proxy_that_says_no_or_nonsense_gets_nothing() {
    let proxy = Proxy::start();
    let scene = Scene::with(&[("CORP_KEY", CORP.to_owned())], |policy, _| behind(&policy, proxy.address));
    answering(&scene);
    let says = [
        Say::Bytes("HTTP/1.1 407 Y29ycDpzd29yZGZpc2g=\r\n\r\n"),
        Say::Bytes("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
        Say::Bytes("HTTP/1.1 100 Continue\r\n\r\n"),
        Say::Bytes("SSH-2.0-OpenSSH\r\n\r\n"),
        Say::Bytes("HTTP/1.1 200 OK\r\n"),
        Say::Flood(1 << 20),
        Say::Close,
    ];
    for (number, say) in says.into_iter().enumerate() {
        proxy.say(say);
        assert_ne!(scene.show("O-1")["status"], "done", "{number}");
        let heard = scene.act(&format!("E-{number}"));
        assert_ne!(heard["status"], "done", "{number}: {heard}");
    }
    assert_eq!((scene.shop.connections(), scene.pay.connections()), (0, 0));
    let log = scene.logs("made no tunnel");
    for secret in [CORP, SHOP_SECRET, PAY_SECRET] {
        assert!(!log.contains(secret), "{log}");
    }
    // What was not sent can be sent: each once, when the proxy does its work.
    proxy.say(Say::Tunnel);
    let heard = scene.act("E-0");
    assert!(heard["status"] == "done" || heard["status"] == "pending", "{heard}");
    assert!(posts(&scene.pay) <= 1);
}

#[test]
fn a_proxy_takes_nobody_to_an_address_that_is_not_allowed() {
    let proxy = Proxy::start();
    let scene = Scene::with(&[("CORP_KEY", CORP.to_owned())], |policy, [shop, pay]| {
        let policy = policy.replace(&shop.url(), "http://169.254.169.254");
        let policy = policy.replace(&pay.url(), "http://pay.test");
        behind(&policy, proxy.address)
    });
    assert_ne!(scene.show("O-1")["status"], "done");
    assert_ne!(scene.act("E-1")["status"], "done");
    assert_eq!(proxy.heads(), Vec::<String>::new());
    scene.logs("a metadata service");
    scene.logs("plain http goes through a proxy");
}
