//! The arithmetic of `host/SCALE.md`: from what was measured to a billion records and ten thousand effects a second.
//! `BLESS=1` writes the section; otherwise the page has to say what this says.

use std::fmt::Write as _;
use std::path::Path;

/// Measured, at a million records: bytes on the disk of one effect with its three records and all indexes.
const BYTES: f64 = 4_700.0;
/// Measured: bytes of log of one effect, two commits, among many callers.
const LOG_BYTES: f64 = 5_500.0;
/// Records of one effect.
const RECORDS: f64 = 3.0;
/// Commits that somebody waits for.
const COMMITS: f64 = 2.0;
/// The ledger that is calculated, and its load.
const LEDGER: f64 = 1e9;
const PER_SECOND: f64 = 1e4;
/// A database's page; random keys leave its leaves about so full, rising ones so full.
const PAGE: f64 = 8_192.0;
const RANDOM_FULL: f64 = 0.69;
const RISING_FULL: f64 = 0.9;
/// A sync of a disk that keeps its word, or of a standby in the same region, in seconds.
const SYNC: f64 = 0.002;
/// Hosts, and what each opens: two writers, one for reading, one for numbers.
const HOSTS: f64 = 8.0;
const WRITERS: f64 = 2.0;
const CONNECTIONS: f64 = 4.0;
/// What the autovacuum of PostgreSQL waits between two looks, in seconds.
const LOOK_EVERY: f64 = 60.0;
/// A line of the table of what waits for its number, with its index.
const WAITING_BYTES: f64 = 150.0;

/// Levels of a tree over so many entries, of so many bytes in its leaves and above them (header, aligned key, line
/// pointer): above the leaves only as many columns are kept as tell neighbours apart.
fn levels(entries: f64, leaf: f64, above: f64, full: f64) -> u32 {
    let fan_out = (PAGE * full / above).floor();
    let (mut levels, mut reach) = (1, (PAGE * full / leaf).floor());
    while reach < entries {
        (levels, reach) = (levels + 1, reach * fan_out);
    }
    levels
}

/// Of each tree: its name, entries a record, bytes of an entry in leaves and above, how full its pages are.
const TREES: [(&str, f64, f64, f64, f64); 3] = [
    ("records", 1.0, 60.0, 52.0, RANDOM_FULL),
    ("heads", 1.0 / RECORDS, 52.0, 52.0, RANDOM_FULL),
    ("numbers", 1.0, 20.0, 20.0, RISING_FULL),
];

fn section() -> String {
    let mut text = String::new();
    let mut line = |what: &str, how: &str, figure: String| {
        let _ = writeln!(text, "| {what} | {how} | {figure} |");
    };
    line("what", "from", "figure".into());
    line("---", "---", "---:".into());
    let effects = LEDGER / RECORDS;
    line("effects in it", "three records each", format!("{:.2} × 10⁸", effects / 1e8));
    let filled = effects / PER_SECOND / 3_600.0;
    line("filled at this load within", "effects ÷ load", format!("{filled:.1} h"));
    line("on the disk", "bytes an effect × effects", format!("{:.2} TB", BYTES * effects / 1e12));
    line("a day at this load", "bytes an effect × 86,400 s", format!("{:.2} TB", BYTES * PER_SECOND * 86_400.0 / 1e12));
    for (name, each, leaf, above, full) in TREES {
        let at = |records: f64| levels(records * each, leaf, above, full);
        let how = format!("{leaf} bytes an entry, {above} above the leaves, pages {:.0} % full", full * 100.0);
        line(
            &format!("levels of the tree of {name}"),
            &how,
            format!("{}, beside {} at 10⁶ records", at(LEDGER), at(1e6)),
        );
    }
    line("log", "bytes an effect × load", format!("{:.0} MB/s", LOG_BYTES * PER_SECOND / 1e6));
    let commits = HOSTS * WRITERS / (2.0 * SYNC);
    line("statements a second, at most", "writers ÷ (sync and round trip, 2 × 2 ms)", format!("{commits:.0}"));
    let group = PER_SECOND * COMMITS / commits;
    line("appends in one statement", "two an effect ÷ statements; 512 are allowed", format!("{group:.0}"));
    line("syncs a second, at most", "1 ÷ 2 ms: PostgreSQL joins commits that wait", format!("{:.0}", 1.0 / SYNC));
    line("connections", "8 hosts × (2 writers, 1 reader, 1 for numbers)", format!("{:.0}", HOSTS * CONNECTIONS));
    let dead = PER_SECOND * (RECORDS + RECORDS - 1.0);
    line("dead lines a second", "3 waiting, 2 heads an effect", format!("{dead:.0}"));
    let bloat = PER_SECOND * RECORDS * LOOK_EVERY * WAITING_BYTES;
    line("`oncegate_waiting` between two vacuums", "lines of 60 s × 150 bytes", format!("{:.0} MB", bloat / 1e6));
    text
}

#[test]
fn the_page_says_what_the_arithmetic_says() {
    const BEGIN: &str = "<!-- calculated: BLESS=1 cargo test -p oncegate-ledger -- the_page_says -->\n";
    const END: &str = "<!-- end -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SCALE.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", section())).unwrap();
    } else {
        assert_eq!(written, section());
    }
}

/// As `bt_metap` says of the ledgers that were measured; the page has the same figures.
#[test]
fn trees_are_as_deep_as_they_were_seen_to_be() {
    for (records, seen) in [(10_002.0, [2, 2, 2]), (100_002.0, [3, 3, 2]), (1_000_002.0, [3, 3, 3])] {
        let calculated = TREES.map(|(_, each, leaf, above, full)| levels(records * each, leaf, above, full));
        assert_eq!(calculated, seen, "{records}");
    }
}
