//! Components that the policy knows by their signer: what counts, what does not and why, and that a tool
//! which is known otherwise than before does nothing a second time.

use std::fs;
use std::path::{Path, PathBuf};

use oncegate_tests::debian;
use oncegate_tests::harness::{Guest, Harness, Options, Run};
use oncegate_tests::provider::mode::Mode;
use serde_json::Value;

use crate::agent::{Heard, call, refund};
use crate::attacks::{change_policy, changed, digest};

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";

/// The refunds tool in a folder of its own, known by a signer.
struct Scene {
    harness: Harness,
    component: PathBuf,
    by_digest: String,
    /// The policy from the entry's tenants on.
    rest: String,
}

impl Scene {
    /// The tool is known by digest; the signers' keys are there.
    fn new(signers: &[&str]) -> Self {
        let example = Guest::example("refunds").unwrap();
        let folder = tempfile::tempdir().unwrap().keep();
        let component = folder.join("refunds.wasm");
        fs::copy(&example.component, &component).unwrap();
        let guest = Guest { component: component.clone(), contract: example.contract };
        let by_digest = format!("digest = \"sha256:{}\"", digest(&guest));
        let limits = "request-deadline = \"1s\"\nidle = \"1s\"".to_owned();
        let harness = Harness::with(guest, Options { limits, ..Options::default() }).unwrap();
        let policy = fs::read_to_string(harness.home().join("policy.toml")).unwrap();
        let rest = policy[policy.find("tenants = ").unwrap()..].to_owned();
        let scene = Self { harness, component, by_digest, rest };
        for signer in signers {
            scene.run(&["keygen", "--no-password", "-o", &scene.key(signer)]);
        }
        scene
    }

    fn key(&self, signer: &str) -> String {
        self.component.with_file_name(format!("{signer}.key")).display().to_string()
    }

    fn public(&self, signer: &str) -> String {
        let text = fs::read_to_string(format!("{}.pub", self.key(signer))).unwrap();
        text.lines().nth(1).unwrap().to_owned()
    }

    fn signature(&self) -> PathBuf {
        PathBuf::from(format!("{}.minisig", self.component.display()))
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Run {
        let run = self.harness.run(arguments).unwrap();
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
        run
    }

    fn sign(&self, signer: &str) {
        self.run(&["sign", &self.component.display().to_string(), "--key", &self.key(signer)]);
    }

    /// The policy with other words for how the tool is known, and with these signers.
    fn known_by(&self, entry: &str, signers: &str) {
        let file = self.harness.home().join("policy.toml");
        fs::write(&file, format!("[[component]]\n{entry}\n{}{signers}", self.rest)).unwrap();
    }

    fn signer(&self, name: &str) -> String {
        format!("\n[signer.{name}]\nkey = \"{}\"\n", self.public(name))
    }

    fn refund(&self, id: &str) -> Heard {
        call(&self.harness, TOOL, &refund(id, "broken"), &[])
    }

    fn refunds(&self) -> usize {
        self.harness.provider().count("refund").unwrap()
    }

    /// What the policy decides, and why, as an operator reads it.
    fn explained(&self) -> String {
        let component = self.component.display().to_string();
        let run = self.harness.run(&["policy", "explain", &component, "create-refund", "--tenant", "acme"]).unwrap();
        format!("{}{}", run.stdout, run.stderr)
    }

    /// The call is refused, nothing happens, and the operator is told why.
    #[track_caller]
    fn is_refused(&self, id: &str, why: &str) {
        let before = self.refunds();
        let heard = self.refund(id);
        assert_eq!(heard.status(), "refused", "{heard:#?}");
        assert!(heard.receipts().is_empty(), "{heard:#?}");
        assert_eq!(self.refunds(), before);
        let said = self.explained();
        assert!(said.contains(why), "not {why:?} in {said}");
        // The agent is not told how its rights could be wider.
        let agent = heard.json["message"].as_str().unwrap();
        assert!(!["sign", "policy", "key"].iter().any(|word| agent.contains(word)), "{agent}");
    }
}

#[test]
fn what_the_signer_signed_runs_and_nothing_else_does() {
    let scene = Scene::new(&["acme", "later", "evil"]);
    scene.known_by("signer = \"acme\"", &scene.signer("acme"));
    scene.is_refused("R-1001", "there is no ");
    scene.sign("acme");
    assert_eq!(scene.refund("R-1001").status(), "done");
    assert!(scene.explained().contains("signer acme"), "{}", scene.explained());
    let signature = fs::read_to_string(scene.signature()).unwrap();

    // Cut off.
    fs::write(scene.signature(), &signature[..signature.len() / 2]).unwrap();
    scene.is_refused("R-1002", "was cut off or changed");
    // Of the right key and for these bytes by its words, and changed.
    let lines: Vec<&str> = signature.lines().collect();
    let flipped = if lines[1].ends_with("A=") { "E=" } else { "A=" };
    let changed_line = format!("{}{flipped}", &lines[1][..lines[1].len() - 2]);
    fs::write(scene.signature(), signature.replace(lines[1], &changed_line)).unwrap();
    scene.is_refused("R-1002", "does not fit its bytes");
    // A comment is signed as well.
    fs::write(scene.signature(), signature.replace("timestamp:1", "timestamp:2")).unwrap();
    scene.is_refused("R-1002", "does not fit its bytes");
    // By somebody else.
    scene.sign("evil");
    scene.is_refused("R-1002", "which no [signer.NAME] has");
    // Of another component, and of an earlier build of this one.
    let campaign = scene.component.with_file_name("campaign.wasm");
    fs::copy(Guest::example("campaign").unwrap().component, &campaign).unwrap();
    scene.run(&["sign", &campaign.display().to_string(), "--key", &scene.key("acme")]);
    fs::copy(format!("{}.minisig", campaign.display()), scene.signature()).unwrap();
    scene.is_refused("R-1002", "is of another component or build, acme-campaign");
    let (earlier, _folder) = changed(&[("max = 500", "max = 499")]);
    let old = scene.component.with_file_name("old.wasm");
    fs::copy(&earlier.component, &old).unwrap();
    scene.run(&["sign", &old.display().to_string(), "--key", &scene.key("acme")]);
    fs::copy(format!("{}.minisig", old.display()), scene.signature()).unwrap();
    scene.is_refused("R-1002", "is of another component or build, sha256:");

    // Two keys while one replaces another; then the first is revoked, which is told from an unknown one.
    fs::write(scene.signature(), &signature).unwrap();
    let (first, second) = (scene.public("acme"), scene.public("later"));
    scene.known_by("signer = \"acme\"", &format!("\n[signer.acme]\nkey = [\"{first}\", \"{second}\"]\n"));
    assert_eq!(scene.refund("R-1002").status(), "done");
    scene.known_by("signer = \"acme\"", &format!("\n[signer.acme]\nkey = \"{second}\"\nrevoked = \"{first}\"\n"));
    scene.is_refused("R-1003", "which [signer.acme] lists as revoked");
    scene.sign("later");
    assert_eq!(scene.refund("R-1003").status(), "done");
    // Where digest and signer are both named, both must hold.
    scene.known_by(&format!("{}\nsigner = \"acme\"", scene.by_digest), &scene.signer("acme"));
    scene.is_refused("R-1004", "which no [signer.NAME] has");
    scene.sign("acme");
    assert_eq!(scene.refund("R-1004").status(), "done");
    scene.known_by(&format!("digest = \"sha256:{}\"\nsigner = \"acme\"", "0".repeat(64)), &scene.signer("acme"));
    scene.is_refused("R-1005", "no [[component]] of the policy is for");
    assert_eq!(scene.refunds(), 4);
}

#[test]
fn a_tool_that_is_known_otherwise_than_before_does_nothing_twice() {
    let scene = Scene::new(&["acme", "evil"]);
    let first = scene.refund("R-1001");
    assert_eq!(first.status(), "done");
    let receipt = first.receipts()[0].to_owned();
    scene.sign("acme");

    // The same tool by its signer: its history is there, and nobody said that it is the same tool's.
    scene.known_by("signer = \"acme\"", &scene.signer("acme"));
    for id in ["R-1001", "R-1002"] {
        let heard = scene.refund(id);
        assert_eq!(heard.status(), "refused", "{heard:#?}");
        assert!(heard.receipts().is_empty(), "{heard:#?}");
    }
    let run = Run::of(&mut scene.harness.call(TOOL, &refund("R-1001", "broken"), &[])).unwrap();
    assert!(run.stderr.contains("lineage = \"acme-refunds\""), "{}", run.stderr);
    // Another name would make every key new.
    scene.known_by("signer = \"acme\"\nlineage = \"elsewhere\"", &scene.signer("acme"));
    assert_eq!(scene.refund("R-1001").status(), "refused");
    assert_eq!(scene.refunds(), 1);
    // The policy's line joins them.
    scene.known_by("signer = \"acme\"\nlineage = \"acme-refunds\"", &scene.signer("acme"));
    scene.refund("R-1001").is_replay_of(&receipt);
    assert_eq!(scene.refund("R-1002").status(), "done");
    assert_eq!(scene.refunds(), 2);
    // From then on it is known both ways.
    scene.known_by("signer = \"acme\"", &scene.signer("acme"));
    assert_eq!(scene.refund("R-1002").status(), "already_done");
    scene.known_by(&scene.by_digest, "");
    scene.refund("R-1001").is_replay_of(&receipt);
    // Somebody else's tool of the same name neither hears nor does anything of it.
    scene.sign("evil");
    scene.known_by("signer = \"evil\"", &scene.signer("evil"));
    for id in ["R-1001", "R-1003"] {
        let heard = scene.refund(id);
        assert_eq!(heard.status(), "refused", "{heard:#?}");
        assert!(heard.receipts().is_empty(), "{heard:#?}");
    }
    assert_eq!(scene.refunds(), 2);
}

#[test]
fn a_lineage_that_is_taken_out_again_is_refused() {
    let scene = Scene::new(&[]);
    scene.known_by(&format!("{}\nlineage = \"shared\"", scene.by_digest), "");
    assert_eq!(scene.refund("R-1001").status(), "done");
    scene.known_by(&scene.by_digest, "");
    assert_eq!(scene.refund("R-1001").status(), "refused");
    scene.known_by(&format!("{}\nlineage = \"other\"", scene.by_digest), "");
    assert_eq!(scene.refund("R-1001").status(), "refused");
    // Two entries with two names would be two keys.
    let rest = "tenants = [\"acme\"]\ngrant = [\"create-refund\"]\n";
    let two = format!("{0}\nlineage = \"shared\"\n{rest}[[component]]\n{0}", scene.by_digest);
    scene.known_by(&two, "");
    assert_eq!(scene.refund("R-1001").status(), "refused");
    assert!(scene.explained().contains("name different lineages"), "{}", scene.explained());
    scene.known_by(&format!("{}\nlineage = \"shared\"", scene.by_digest), "");
    assert_eq!(scene.refund("R-1001").status(), "already_done");
    assert_eq!(scene.refunds(), 1);
}

#[test]
fn what_a_signed_tool_left_open_is_settled_without_its_file() {
    let scene = Scene::new(&["acme"]);
    scene.known_by("signer = \"acme\"", &scene.signer("acme"));
    scene.sign("acme");
    scene.harness.provider().mode(Mode::CompleteThenReset, "POST", REFUNDS, Some(1)).unwrap();
    // The contract's own lookup is held back until the file is gone.
    change_policy(&scene.harness, "\"find-refund\"", "\"no-such-operation\"");
    let open = scene.refund("R-1001");
    assert_eq!(open.status(), "pending", "{open:#?}");
    change_policy(&scene.harness, "\"no-such-operation\"", "\"find-refund\"");
    fs::remove_file(&scene.component).unwrap();
    fs::remove_file(scene.signature()).unwrap();
    let settled = scene.harness.run(&["ledger", "reconcile"]).unwrap();
    assert_eq!(settled.code, Some(0), "{}{}", settled.stdout, settled.stderr);
    let list: Value = scene.run(&["ledger", "list", "--json"]).json().unwrap();
    assert!(list.to_string().contains("\"done\""), "{list:#}");
    // A kept verdict that this host did not write counts for nothing.
    for entry in fs::read_dir(scene.harness.home().join("cache")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "minisig") {
            let mut bytes = fs::read(entry.path()).unwrap();
            bytes[0] ^= 1;
            fs::write(entry.path(), bytes).unwrap();
        }
    }
    let run = scene.harness.run(&["ledger", "reconcile", "--confirm"]).unwrap();
    assert!(run.stderr.contains("not this host's"), "{}", run.stderr);
}

#[test]
fn inspect_says_who_signed() {
    let scene = Scene::new(&["acme"]);
    let component = scene.component.display().to_string();
    let state = |scene: &Scene| scene.run(&["inspect", &component, "--json"]).json().unwrap()["signature"].clone();
    assert_eq!(state(&scene)["state"], "none");
    scene.sign("acme");
    assert_eq!(state(&scene)["state"], "unknown-key");
    scene.known_by("signer = \"acme\"", &scene.signer("acme"));
    let signed = state(&scene);
    assert_eq!((&signed["state"], &signed["signer"]), (&"signed".into(), &"acme".into()), "{signed}");
    let page = scene.run(&["inspect", &component]).stdout;
    assert!(page.contains("signature  by acme"), "{page}");
    scene.run(&["verify", &component]);
    fs::write(scene.signature(), "no signature").unwrap();
    assert_eq!(state(&scene)["state"], "refused");
    assert_eq!(scene.harness.run(&["verify", &component]).unwrap().code, Some(3));
}

#[test]
fn minisign_and_we_read_each_others_keys_and_signatures() {
    debian::install(&["minisign"]).unwrap();
    let scene = Scene::new(&["acme"]);
    let folder = scene.component.parent().unwrap();
    let component = scene.component.display().to_string();
    let signature = scene.signature().display().to_string();
    let minisign = |arguments: &[&str]| {
        let run = Run::of(std::process::Command::new("minisign").current_dir(folder).args(arguments)).unwrap();
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
    };
    // Theirs, with a key that has no password: signed by them and by us.
    minisign(&["-G", "-W", "-p", "theirs.pub", "-s", "theirs.key"]);
    minisign(&["-S", "-s", "theirs.key", "-m", &component, "-x", &signature]);
    let theirs = folder.join("theirs.pub").display().to_string();
    scene.run(&["verify", &component, "--key", &theirs]);
    scene.run(&["sign", &component, "--key", &folder.join("theirs.key").display().to_string()]);
    minisign(&["-V", "-p", "theirs.pub", "-m", &component, "-x", &signature]);
    // The old form signs the bytes and not their digest.
    minisign(&["-S", "-l", "-s", "theirs.key", "-m", &component, "-x", &signature]);
    let refused = scene.harness.run(&["verify", &component, "--key", &theirs]).unwrap();
    assert!(refused.code == Some(3) && refused.stdout.contains("old form"), "{}{}", refused.stdout, refused.stderr);
    // Ours, with a password.
    let password = folder.join("password");
    fs::write(&password, "open sesame\n").unwrap();
    let password = password.display().to_string();
    let ours = folder.join("ours.key").display().to_string();
    scene.run(&["keygen", "-o", &ours, "--password-file", &password]);
    assert_eq!(mode(Path::new(&ours)), 0o600);
    scene.run(&["sign", &component, "--key", &ours, "--password-file", &password]);
    minisign(&["-V", "-p", "ours.key.pub", "-m", &component, "-x", &signature]);
    fs::write(&password, "open barley\n").unwrap();
    let wrong = scene.harness.run(&["sign", &component, "--key", &ours, "--password-file", &password]).unwrap();
    assert!(wrong.code == Some(1) && wrong.stderr.contains("Wrong password"), "{}", wrong.stderr);
    // Nobody is there to be asked.
    let asked = scene.harness.run(&["sign", &component, "--key", &ours]).unwrap();
    assert!(asked.code == Some(2) && asked.stderr.contains("--password-file"), "{}", asked.stderr);
    let public = format!("{ours}.pub");
    let wrong = scene.harness.run(&["sign", &component, "--key", &public, "--password-file", &password]).unwrap();
    assert!(wrong.stderr.contains("is a public key"), "{}", wrong.stderr);
    // A key that is there is kept.
    assert_eq!(scene.harness.run(&["keygen", "--no-password", "-o", &ours]).unwrap().code, Some(1));
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
