//! What a login can do in MySQL or MariaDB beside reading, by its own `SHOW GRANTS`.

use super::RoleFinding;

/// Privileges by which a login reads and nothing more.
const READING: [&str; 3] = ["USAGE", "SELECT", "SHOW VIEW"];

/// Every privilege that is not on the list. A line of `SHOW GRANTS` may hold the hash of a password, so
/// none is repeated: only the privileges' names and what they are on.
pub(super) fn findings(lines: &[String]) -> Vec<RoleFinding> {
    let mut found = Vec::new();
    for line in lines {
        match line.strip_prefix("GRANT ") {
            Some(rest) => found.extend(grant(rest)),
            // MariaDB tells the default role in a line of its own.
            None if line.starts_with("SET DEFAULT ROLE ") => {}
            None => found.push(more("it holds a grant that is not understood".to_owned())),
        }
    }
    found
}

fn more(what: String) -> RoleFinding {
    RoleFinding { refused: true, what }
}

fn grant(rest: &str) -> Vec<RoleFinding> {
    let head = outside_of_quotes(rest, " TO ").map_or(rest, |at| &rest[..at]);
    let Some(at) = outside_of_quotes(head, " ON ") else {
        // A role: its own grants are lines of their own where it is active, and a SELECT activates none.
        let quoted = head.split(',').all(|role| role.trim().starts_with(['`', '\'', '"']));
        return if quoted { Vec::new() } else { vec![more("it holds a grant that is not understood".to_owned())] };
    };
    let (privileges, on) = (&head[..at], head[at + 4..].trim());
    let mut found: Vec<_> = listed(privileges)
        .into_iter()
        .filter(|name| !READING.contains(&name.as_str()))
        .map(|name| more(format!("it may {name} on {on}")))
        .collect();
    if outside_of_quotes(rest, " WITH GRANT OPTION").is_some() {
        found.push(more(format!("it may pass its rights on {on} on to others")));
    }
    found
}

/// Where a text stands outside of backticks and quotes.
fn outside_of_quotes(text: &str, wanted: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if text[at..].starts_with(wanted) => return Some(at),
            None if matches!(c, '`' | '\'' | '"') => quote = Some(c),
            None => {}
        }
    }
    None
}

/// The names of privileges, without the columns in brackets behind them.
fn listed(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain.split(',').map(|name| name.trim().to_ascii_uppercase()).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(lines: &[&str]) -> Vec<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        findings(&lines).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn a_reader_only_reads() {
        let none: Vec<String> = Vec::new();
        assert_eq!(
            refused(&[
                "GRANT USAGE ON *.* TO `r`@`%` IDENTIFIED BY PASSWORD '*00A5'",
                "GRANT SELECT, SHOW VIEW ON `books`.* TO `r`@`%`",
                "GRANT SELECT (`id`, `title`) ON `books`.`secret` TO `r`@`%`",
                "GRANT `reader` TO `r`@`%`",
                "GRANT `reader`@`%` TO `r`@`%`",
                "SET DEFAULT ROLE `reader` FOR `r`@`%`",
            ]),
            none
        );
    }

    #[test]
    fn whatever_else_it_may_is_told_without_the_hash() {
        for (line, what) in [
            ("GRANT SELECT, INSERT ON `books`.* TO `r`@`%`", "it may INSERT on `books`.*"),
            ("GRANT ALL PRIVILEGES ON *.* TO `r`@`%`", "it may ALL PRIVILEGES on *.*"),
            ("GRANT SELECT (`a`), UPDATE (`b`) ON `x`.`y` TO `r`@`%`", "it may UPDATE on `x`.`y`"),
            ("GRANT EXECUTE ON PROCEDURE `a`.`b` TO `r`@`%`", "it may EXECUTE on PROCEDURE `a`.`b`"),
            ("GRANT FILE ON *.* TO `r`@`%` IDENTIFIED BY PASSWORD '*00A5'", "it may FILE on *.*"),
            ("GRANT PROXY ON ''@'' TO 'r'@'%'", "it may PROXY on ''@''"),
            ("GRANT SELECT ON `b`.* TO `r`@`%` WITH GRANT OPTION", "it may pass its rights on `b`.* on to others"),
            ("GRANT SELECT, DROP ON `a TO b ON c`.* TO `r`@`%`", "it may DROP on `a TO b ON c`.*"),
            ("REVOKE SELECT", "it holds a grant that is not understood"),
        ] {
            assert_eq!(refused(&[line]), [what], "{line}");
        }
    }
}
