//! A provider on loopback that goes wrong on request and counts what really happened.
//!
//! Paths of the business are in [`domains`]; the ways to go wrong in [`mode`]. A test steers it
//! by paths that begin with `/_`, which no mode spoils:
//!
//! | Request | Does |
//! |---|---|
//! | `POST /_control {"mode": "complete-then-hang", "path": "/v1/refunds", "method": "POST", "after": 0, "times": 1, "every": 1}` | adds a rule; only `mode` is needed |
//! | `POST /_control {"settings": {"index_lag_ms": 500}}` | replaces the settings |
//! | `POST /_control {"clear": true}` | forgets the rules |
//! | `POST /_seed {"returns": [{"id": "R-1", "charge": "ch_1", "amount": 100, "status": "received"}]}` | adds or replaces objects |
//! | `POST /_reset` | forgets everything |
//! | `GET /_effects` | `{"counts": {"refund": 1, "email": 0, …}, "effects": […]}`: the oracle |
//! | `GET /_met` | how many requests a mode spoiled |
//! | `GET /_log` | every request of the business with its mode and the effects it caused |

mod answer;
mod datasets;
pub mod domains;
pub mod http;
pub mod mode;
mod posts;

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use domains::{Settings, World};
use http::{Reply, Request};
use mode::{Mode, Rule, Rules};

/// One request of the business, as the log shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Logged {
    /// Milliseconds since the provider started.
    pub at_ms: u64,
    /// The method.
    pub method: String,
    /// The path, percent-encoded as sent.
    pub path: String,
    /// The query, percent-encoded as sent.
    pub query: String,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body; bytes that are not UTF-8 are replaced.
    pub body: String,
    /// What the request met.
    pub mode: Mode,
    /// How many effects it caused: 0 or 1.
    pub effects: usize,
}

#[derive(Default)]
struct Inside {
    world: World,
    rules: Rules,
    log: Vec<Logged>,
}

/// Shared by all connections of one provider.
#[derive(Clone)]
struct Shared {
    inside: Arc<Mutex<Inside>>,
    started: Instant,
}

/// A running provider. Its threads end with the process.
pub struct Provider {
    address: SocketAddr,
}

impl Provider {
    /// Starts one on a free port of loopback.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn start() -> io::Result<Self> {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts one on that address.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Shared { inside: Arc::default(), started: Instant::now() };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                // A connection that ends badly is the client's business, not the provider's.
                thread::spawn(move || shared.converse(stream).ok());
            }
        });
        Ok(Self { address })
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn converse(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(mut request) = http::read_first_line(&mut reader)? {
            let last = if request.path.starts_with("/_") {
                http::read_rest(&mut reader, &mut request)?;
                let reply = self.control(&request);
                answer::write_clean(&stream, &reply)?;
                false
            } else {
                self.business(&stream, &mut reader, &mut request)?
            };
            if last || request.header("connection") == Some("close") {
                break;
            }
        }
        Ok(())
    }

    /// Meets one request of the business; true when the connection is over.
    fn business(
        &self,
        stream: &TcpStream,
        reader: &mut BufReader<TcpStream>,
        request: &mut Request,
    ) -> io::Result<bool> {
        let mode = self.lock().rules.take(&request.method, &request.path);
        if matches!(mode, Mode::AcceptThenHang | Mode::ResetBefore) {
            self.log(request, mode, 0);
            return answer::spoil_unread(stream, mode);
        }
        http::read_rest(reader, request)?;
        let mode = self.lock().world.met(request, mode);
        let (reply, latency_ms) = self.work(request, mode);
        thread::sleep(Duration::from_millis(latency_ms));
        answer::write(stream, &reply, mode, request.method == "HEAD")
    }

    /// Does what the request asks for, unless the mode stops it first; counts and logs it.
    fn work(&self, request: &Request, mode: Mode) -> (Reply, u64) {
        let now_ms = self.now_ms();
        let mut inside = self.lock();
        let before = inside.world.effects.len();
        let reply = match mode {
            mode if mode.stops_before() => answer::refusal(mode),
            _ => inside.world.handle(request, now_ms),
        };
        let effects = inside.world.effects.len() - before;
        let latency_ms = inside.world.settings.latency_ms;
        drop(inside);
        self.log(request, mode, effects);
        (reply, latency_ms)
    }

    fn log(&self, request: &Request, mode: Mode, effects: usize) {
        let logged = Logged {
            at_ms: self.now_ms(),
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            headers: request.headers.clone(),
            body: String::from_utf8_lossy(&request.body).into_owned(),
            mode,
            effects,
        };
        self.lock().log.push(logged);
    }

    fn control(&self, request: &Request) -> Reply {
        let body = serde_json::from_slice::<Value>(&request.body).unwrap_or(Value::Null);
        let mut inside = self.lock();
        let done = match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/_effects") => Ok(json!({
                "counts": inside.world.counts(),
                "effects": inside.world.effects,
            })),
            ("GET", "/_met") => {
                Ok(json!({ "met": inside.log.iter().filter(|logged| logged.mode != Mode::Clean).count() }))
            }
            ("GET", "/_log") => Ok(json!(inside.log)),
            ("POST", "/_reset") => {
                let forgotten = inside.world.forgotten + inside.world.effects.len();
                *inside = Inside::default();
                inside.world.forgotten = forgotten;
                Ok(json!({}))
            }
            ("POST", "/_seed") => inside.world.seed(&body).map(|()| json!({})),
            ("POST", "/_control") => inside.control(body).map(|()| json!({})),
            _ => Err("no such control".to_owned()),
        };
        done.map_or_else(|message| Reply::error(400, "control", &message), |body| Reply::json(200, &body))
    }
}

impl Inside {
    fn control(&mut self, body: Value) -> Result<(), String> {
        if body["clear"] == true {
            self.rules.clear();
            return Ok(());
        }
        let settings = body.get("settings").cloned();
        match settings {
            Some(settings) => {
                let settings = serde_json::from_value::<Settings>(settings);
                self.world.settings = settings.map_err(|error| error.to_string())?;
            }
            None => {
                let rule = serde_json::from_value::<Rule>(body);
                self.rules.add(rule.map_err(|error| error.to_string())?);
            }
        }
        Ok(())
    }
}
