//! Names that change their meaning, name servers that lie, and addresses that lead inside.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::villain::{self, Villain, tag};
use super::{Scene, until_not};

/// An answer's bytes, made of the question's.
type Lie = fn(&[u8]) -> Vec<u8>;

/// What a question is answered with.
#[derive(Clone)]
enum Say {
    Addresses(Vec<IpAddr>),
    /// Whatever these are.
    Bytes(Lie),
    /// Cut off, so that it is asked again over TCP; there these.
    Cut(Vec<IpAddr>),
    Nothing,
}

/// A name server of the test's own.
struct Names {
    address: SocketAddr,
    say: Arc<Mutex<Say>>,
    asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl Names {
    fn start() -> Self {
        // A port that is free for both.
        let (udp, tcp) = (0..50)
            .find_map(|_| {
                let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
                Some((UdpSocket::bind(tcp.local_addr().ok()?).ok()?, tcp))
            })
            .unwrap();
        let names =
            Self { address: udp.local_addr().unwrap(), say: Arc::new(Mutex::new(Say::Nothing)), asked: Arc::default() };
        let (say, asked) = (Arc::clone(&names.say), Arc::clone(&names.asked));
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                let question = &bytes[..length];
                asked.lock().unwrap_or_else(PoisonError::into_inner).push(read(question));
                let say = say.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let answer = match say {
                    Say::Addresses(addresses) => answer(question, &addresses),
                    Say::Bytes(make) => make(question),
                    Say::Cut(_) => {
                        let mut cut = answer(question, &[]);
                        cut[2] |= 0x02;
                        cut
                    }
                    Say::Nothing => continue,
                };
                udp.send_to(&answer, from).ok();
            }
        });
        let say = Arc::clone(&names.say);
        thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut bytes = [0; 1024];
                let read = stream.read(&mut bytes).unwrap_or_default();
                let say = say.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let (Say::Cut(addresses), Some(question)) = (say, bytes.get(2..read)) {
                    let answer = answer(question, &addresses);
                    let length = (answer.len() as u16).to_be_bytes();
                    stream.write_all(&[length.as_slice(), &answer].concat()).ok();
                }
            }
        });
        names
    }

    fn say(&self, say: Say) {
        *self.say.lock().unwrap() = say;
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<(String, u16)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// The name and the kind that a question is for.
fn read(question: &[u8]) -> (String, u16) {
    let (mut name, mut at) = (Vec::new(), 12);
    while question[at] != 0 {
        let length = usize::from(question[at]);
        name.push(String::from_utf8_lossy(&question[at + 1..at + 1 + length]).into_owned());
        at += 1 + length;
    }
    (name.join("."), u16::from_be_bytes([question[at + 1], question[at + 2]]))
}

/// An answer with those of the addresses that are of the kind that was asked.
fn answer(question: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
    let kind = read(question).1;
    let fitting = addresses.iter().filter(|address| address.is_ipv4() == (kind == A));
    let records: Vec<Vec<u8>> = fitting
        .map(|address| {
            let data = match address {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let head = [[0xc0, 12].as_slice(), &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 0]].concat();
            [head, (data.len() as u16).to_be_bytes().to_vec(), data].concat()
        })
        .collect();
    let mut bytes = question.to_vec();
    bytes[2..4].copy_from_slice(&[0x81, 0x80]);
    bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    [bytes, records.concat()].concat()
}

/// One address of each kind.
fn loopback() -> [IpAddr; 2] {
    ["127.0.0.1", "::1"].map(|text| text.parse().unwrap())
}

fn addresses(texts: &[&str]) -> Say {
    Say::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect())
}

/// The two providers by names of this server.
fn named(names: &Names) -> Scene {
    let server = names.address;
    Scene::with(&[], |policy, [shop, pay]| {
        let policy = policy.replace("[limits]\n", "[limits]\nconnect-within = \"4s\"\n");
        let by_name = |villain: &Villain, name: &str| format!("http://{name}.test:{}", villain.address().port());
        let policy = policy.replace(&shop.url(), &by_name(shop, "shop")).replace(&pay.url(), &by_name(pay, "pay"));
        format!("{policy}\n[resolver]\nserver = \"{server}\"\n")
    })
}

fn answering(scene: &Scene) {
    scene.shop.plays(|_, _| villain::json(200, "{}"));
    scene.pay.plays(|heard, _| match heard.method().as_str() {
        "GET" => villain::json(503, "{}"),
        _ => villain::json(200, &format!(r#"{{"object":"effect","id":"re_{}"}}"#, tag(heard))),
    });
}

#[test]
fn a_name_is_asked_for_once_and_its_change_is_not_followed() {
    let names = Names::start();
    let scene = named(&names);
    answering(&scene);
    names.say(addresses(&["127.0.0.1"]));
    assert_eq!(scene.show("O-1")["status"], "done");
    let mut asked = names.asked();
    asked.sort();
    assert_eq!(asked, [("shop.test".to_owned(), A), ("shop.test".to_owned(), AAAA)], "one question of each kind");
    let port = scene.shop.address().port();
    assert_eq!(scene.shop.heard()[0].headers("host"), [format!("shop.test:{port}")]);

    // The next answer leads inside. Where one address of several does, none is taken.
    for bad in [
        &["169.254.169.254"][..],
        &["127.0.0.1", "169.254.169.254"],
        &["0.0.0.0"],
        &["127.0.0.1", "::ffff:127.0.0.1"],
        &["::ffff:7f00:1"],
        &["::127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["64:ff9b:1::7f00:1"],
        &["2002:7f00:1::"],
        &["fe80::1", "127.0.0.1"],
        &["224.0.0.1"],
        &["255.255.255.255"],
        &["100.100.100.200"],
        &[],
    ] {
        names.say(addresses(bad));
        let heard = scene.show("O-1");
        assert_ne!(heard["status"], "done", "{bad:?}: {heard}");
        assert!(!heard.to_string().contains("169.254"), "{heard}");
    }
    assert_eq!(scene.shop.connections(), 1);

    // The same for an effect: nothing is sent, and once the name is right again, one.
    names.say(addresses(&["127.0.0.1", "169.254.169.254"]));
    let heard = scene.act("E-1");
    assert_ne!(heard["status"], "done", "{heard}");
    assert_eq!(scene.pay.connections(), 0);
    names.say(Say::Cut(vec!["127.0.0.1".parse().unwrap()]));
    let heard = until_not(&["pending", "failed", "refused"], || scene.act("E-1"));
    assert_eq!(heard["status"], "done", "{heard}");
    let posts = scene.pay.heard().iter().filter(|one| one.method() == "POST").count();
    assert_eq!(posts, 1);
}

#[test]
fn a_name_server_that_lies_or_is_silent_connects_nobody() {
    let names = Names::start();
    let scene = named(&names);
    answering(&scene);
    let lies: [Lie; 5] = [
        // Another number.
        |question| {
            let mut lie = answer(question, &loopback());
            lie[1] ^= 1;
            lie
        },
        // Another name.
        |question| {
            let mut lie = answer(question, &loopback());
            lie[13] ^= 1;
            lie
        },
        // A record whose name leads to itself.
        |question| {
            let mut lie = answer(question, &loopback());
            let at = question.len();
            lie[at..at + 2].copy_from_slice(&[0xc0, at as u8]);
            lie
        },
        // More records than there are.
        |question| {
            let mut lie = answer(question, &[]);
            lie[6..8].copy_from_slice(&[0xff, 0xff]);
            lie
        },
        |_| b"no answer at all".to_vec(),
    ];
    for lie in lies {
        names.say(Say::Bytes(lie));
        assert_ne!(scene.show("O-1")["status"], "done");
    }
    names.say(Say::Nothing);
    assert_ne!(scene.show("O-1")["status"], "done");
    assert_eq!(scene.shop.connections(), 0);
    names.say(addresses(&["127.0.0.1"]));
    assert_eq!(scene.show("O-1")["status"], "done");
}

#[test]
fn a_pinned_name_is_asked_of_nobody_and_checked_all_the_same() {
    let names = Names::start();
    names.say(addresses(&["127.0.0.1"]));
    let server = names.address;
    let scene = Scene::with(&[], |policy, [shop, pay]| {
        let policy = policy.replace("127.0.0.1", "shop.test");
        let policy = policy.replace(
            &format!("http://shop.test:{}", pay.address().port()),
            &format!("http://pay.test:{}", pay.address().port()),
        );
        assert!(policy.contains(&format!("http://shop.test:{}", shop.address().port())));
        format!(
            "{policy}\n[resolver]\nserver = \"{server}\"\n[resolver.hosts]\n\"shop.test\" = [\"127.0.0.1\"]\n\"pay.test\" = [\"169.254.169.254\"]\n"
        )
    });
    answering(&scene);
    assert_eq!(scene.show("O-1")["status"], "done");
    assert_ne!(scene.act("E-1")["status"], "done");
    assert_eq!((scene.pay.connections(), names.asked().len()), (0, 0));
}

#[test]
fn without_leave_no_name_leads_to_a_private_address() {
    let names = Names::start();
    names.say(addresses(&["127.0.0.1"]));
    let server = names.address;
    let scene = Scene::with(&[], |policy, [shop, _]| {
        let policy = policy.replace(&shop.url(), &format!("https://shop.test:{}", shop.address().port()));
        let (before, after) = policy.split_once("[endpoint.shop]").unwrap();
        let after = after.replacen("allow-private = true", "allow-private = false", 1);
        format!("{before}[endpoint.shop]{after}\n[resolver]\nserver = \"{server}\"\n")
    });
    answering(&scene);
    for private in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "::1", "fd00::1"] {
        names.say(addresses(&[private]));
        assert_ne!(scene.show("O-1")["status"], "done", "{private}");
    }
    assert_eq!(scene.shop.connections(), 0);
    scene.logs("which is loopback; the policy does not allow it");
}
