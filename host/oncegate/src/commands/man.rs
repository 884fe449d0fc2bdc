//! `oncegate man`: one page per command.

use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::args::Args;
use crate::exit::Exit;

pub(crate) fn run(directory: &Path) -> anyhow::Result<Exit> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(directory)
        .and_then(|()| pages(&command, directory))
        .with_context(|| format!("the man pages cannot be written to {}", directory.display()))?;
    Ok(Exit::Ok)
}

fn pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|sub| pages(sub, directory))?;
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    std::fs::write(directory.join(man.get_filename()), as_typed(&String::from_utf8_lossy(&page)))
}

/// Examples and lists after the options keep their lines and spaces.
fn as_typed(page: &str) -> String {
    let mut text = String::with_capacity(page.len() + 16);
    let mut inside = false;
    for line in page.lines() {
        if inside && line.starts_with(".SH") {
            text.push_str(".fi\n");
            inside = false;
        }
        text.push_str(line);
        text.push('\n');
        if line.starts_with(".SH EXTRA") {
            text.push_str(".nf\n");
            inside = true;
        }
    }
    if inside {
        text.push_str(".fi\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines() {
        let page = ".SH NAME\na\n.SH EXTRA\nExample:\n  a b\n.SH VERSION\nv1\n";
        assert_eq!(as_typed(page), ".SH NAME\na\n.SH EXTRA\n.nf\nExample:\n  a b\n.fi\n.SH VERSION\nv1\n");
        assert!(as_typed(".SH EXTRA\nx").ends_with("x\n.fi\n"));
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("oncegate-ledger-trust.1")).unwrap();
        assert!(page.contains("\n.nf\n"), "{page}");
    }
}
