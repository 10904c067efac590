//! Ordering files for those who can relink. Functions have to be in sections of their own: compile with `-ffunction-sections` (Rust does
//! so by itself). mold has no option for the order of functions.

use std::fmt::Write as _;

use crate::order::Graph;

/// A linker's kind of ordering file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linker {
    /// `ld.lld --symbol-ordering-file=FILE`: symbols, one a line.
    Lld,
    /// `ld.gold --section-ordering-file=FILE`: section names, one a line.
    Gold,
    /// `ld.bfd`: an `INSERT BEFORE .text` script for `-T FILE`.
    Bfd,
}

impl Linker {
    /// All of them, with the name that the command line uses.
    pub const ALL: [(&'static str, Self); 3] = [("lld", Self::Lld), ("gold", Self::Gold), ("bfd", Self::Bfd)];

    /// The flags that use the file, for the help text.
    pub fn flags(self, file: &str) -> String {
        let sections = "-ffunction-sections";
        match self {
            Self::Lld => {
                format!(
                    "{sections} -fuse-ld=lld -Wl,--symbol-ordering-file={file} -Wl,--no-warn-symbol-ordering"
                )
            }
            Self::Gold => format!("{sections} -fuse-ld=gold -Wl,--section-ordering-file={file}"),
            Self::Bfd => format!("{sections} -fuse-ld=bfd -Wl,-T,{file}"),
        }
    }

    /// The ordering file. Functions without a name cannot be ordered by a linker and are left out; their number comes second.
    pub fn file(self, graph: &Graph, order: &[usize]) -> (String, usize) {
        let names: Vec<&str> = order.iter().filter_map(|n| graph.nodes[*n].name.as_deref()).collect();
        let mut out = String::new();
        let mut line =
            |text: std::fmt::Arguments<'_>| writeln!(out, "{text}").expect("a String takes any text");
        let sections = names.iter().flat_map(|name| sections_of(name));
        match self {
            Self::Lld => names.iter().for_each(|name| line(format_args!("{name}"))),
            Self::Gold => sections.for_each(|section| line(format_args!("{section}"))),
            Self::Bfd => {
                line(format_args!("SECTIONS\n{{\n  .text.pagein_hot :\n  {{"));
                // Names with characters that mean something in a script are quoted.
                sections.for_each(|section| line(format_args!("    *(\"{section}\")")));
                line(format_args!("  }}\n}}\nINSERT BEFORE .text;"));
            }
        }
        (out, order.len() - names.len())
    }
}

/// The sections of its own that a compiler may have put a function into. GCC keeps apart what it takes for hot, what runs once before or
/// as `main`, and, as a symbol of its own, the part of a function that it takes for unlikely (`-freorder-functions`, on at -O2).
fn sections_of(name: &str) -> Vec<String> {
    match name.strip_suffix(".cold") {
        Some(function) => vec![format!(".text.unlikely.{function}")],
        None => [".text.", ".text.hot.", ".text.startup."].map(|prefix| format!("{prefix}{name}")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_functions_in_order() {
        let mut graph = crate::order::tests::graph(&[0, 1, 2], &[]);
        graph.nodes[0].name = Some("b.cold".into());
        graph.nodes[2].name = Some("a".into());
        let file = |linker: Linker| linker.file(&graph, &[2, 1, 0]);
        assert_eq!(file(Linker::Lld), ("a\nb.cold\n".into(), 1));
        let sections = [".text.a", ".text.hot.a", ".text.startup.a", ".text.unlikely.b"];
        assert_eq!(file(Linker::Gold).0.lines().collect::<Vec<_>>(), sections);
        let quoted = sections.map(|section| format!("    *(\"{section}\")\n")).concat();
        let script =
            format!("SECTIONS\n{{\n  .text.pagein_hot :\n  {{\n{quoted}  }}\n}}\nINSERT BEFORE .text;\n");
        assert_eq!(file(Linker::Bfd).0, script);
    }
}
