//! A tool that computes and asks nobody: the sandbox's own cost is measured with it.

use exports::test::tariff::tariff::{Guest, Parcel, Price, Zone};

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "test:tariff/tool",
    generate_all,
});

#[used]
#[unsafe(link_section = "oncegate:contract")]
static CONTRACT: [u8; include_bytes!("../contract.toml").len()] = *include_bytes!("../contract.toml");

#[used]
#[unsafe(link_section = "oncegate:wit")]
static WIT: [u8; include_bytes!("../wit/tool.wit").len()] = *include_bytes!("../wit/tool.wit");

struct Tariff;
export!(Tariff);

impl Guest for Tariff {
    fn quote(parcel: Parcel) -> Result<Price, String> {
        let (base, days) = match parcel.zone {
            Zone::Domestic => (399, 2),
            Zone::Neighbours => (799, 4),
            Zone::Overseas => (1499, 9),
        };
        if parcel.weight == 0 {
            return Err("a parcel weighs something".to_owned());
        }
        let insurance = if parcel.insured { 250 } else { 0 };
        let cents = base + u64::from(parcel.weight / 500) * 120 + insurance;
        let service = format!("{}{}", parcel.note.map_or("", |_| "noted "), if parcel.insured { "tracked" } else { "plain" });
        Ok(Price { cents, service, days })
    }
}
