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
        let lines = |out: &mut String, prefix: &str| {
            for name in &names {
                writeln!(out, "{prefix}{name}").expect("a String takes any text");
            }
        };
        match self {
            Self::Lld => lines(&mut out, ""),
            Self::Gold => lines(&mut out, ".text."),
            Self::Bfd => {
                out.push_str("SECTIONS\n{\n  .text.pagein_hot :\n  {\n");
                for name in &names {
                    // Names with characters that mean something in a script are quoted.
                    writeln!(out, "    *(\".text.{name}\")").expect("a String takes any text");
                }
                out.push_str("  }\n}\nINSERT BEFORE .text;\n");
            }
        }
        (out, order.len() - names.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_functions_in_order() {
        let mut graph = crate::order::tests::graph(&[0, 1, 2], &[]);
        graph.nodes[0].name = Some("b".into());
        graph.nodes[2].name = Some("a".into());
        let file = |linker: Linker| linker.file(&graph, &[2, 1, 0]);
        assert_eq!(file(Linker::Lld), ("a\nb\n".into(), 1));
        assert_eq!(file(Linker::Gold).0, ".text.a\n.text.b\n");
        assert!(file(Linker::Bfd).0.contains("*(\".text.a\")\n    *(\".text.b\")"));
    }
}
