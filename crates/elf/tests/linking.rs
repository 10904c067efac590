//! Which words of real programs are linked at page-in, against what `readelf` says of the same file; and damaged programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use pagein_elf::{LinkPlan, Program};
use pagein_image::{Linking, NotLinked, PAGE_SIZE};
use proptest::prelude::*;

const SOURCE: &str = "#include <stdio.h>\n\
    static const char *const names[] = {\"a\", \"b\", \"c\", \"d\"};\n\
    static int one(void) { return 1; }\n\
    int (*volatile table[700])(void) = {[5] = one, [6] = one, [699] = one};\n\
    const char *const *volatile all = names;\n\
    int main(void) { return puts(all[table[6]()]) < 0; }\n";

/// The program above, linked with these flags; `None` if the linker does not know them.
fn compiled(flags: &[&str]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("a.c");
    let out = directory.path().join("a");
    std::fs::write(&source, SOURCE).unwrap();
    let made = Command::new("cc").arg("-O1").args(flags).arg("-o").arg(&out).arg(&source).output();
    let made = made.expect("every test machine has a C compiler");
    made.status.success().then(|| std::fs::read(out).unwrap())
}

fn plan(file: &[u8]) -> Result<LinkPlan, NotLinked> {
    LinkPlan::new(file, &Program::parse_file(file).unwrap())
}

/// Address and addend of every relative relocation, as readelf lists them.
fn listed_by_readelf(file: &[u8]) -> BTreeMap<u64, u64> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    std::fs::write(&path, file).unwrap();
    let listed = Command::new("readelf").args(["-rDW"]).arg(&path).output().expect("binutils are installed");
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(2) == Some(&"R_X86_64_RELATIVE")).then(|| (hex(words[0]), hex(words[3])))
    };
    text.lines().filter_map(entry).collect()
}

/// Every linked word by address: what it is in a program loaded at `bias`.
fn linked_words(file: &[u8], plan: &LinkPlan, bias: u64) -> BTreeMap<u64, u64> {
    let program = Program::parse_file(file).unwrap();
    let mut words = BTreeMap::new();
    for (number, page) in plan.pages() {
        let loaded = page.at(bias);
        for index in page.links.relative() {
            let offset = number.offset().0 + index as u64 * 8;
            let holds = |s: &&pagein_elf::Segment| (s.offset.0..s.offset.0 + s.file_size).contains(&offset);
            let segment = program.segments.iter().rev().find(holds).unwrap();
            let value = u64::from_le_bytes(loaded[index * 8..][..8].try_into().unwrap());
            words.insert(offset - segment.offset.0 + segment.vaddr.0, value);
        }
    }
    words
}

#[test]
fn the_words_are_those_that_readelf_lists() {
    let shell = std::fs::read("/bin/bash").expect("every Linux test machine has bash");
    let bias = 0x5555_5555_4000;
    for file in [shell, compiled(&["-pie", "-fPIE"]).unwrap(), compiled(&["-static-pie", "-fPIE"]).unwrap()] {
        let listed = listed_by_readelf(&file);
        assert!(!listed.is_empty());
        let made = plan(&file).unwrap();
        let expected: BTreeMap<u64, u64> = listed.iter().map(|(at, addend)| (*at, addend + bias)).collect();
        assert_eq!(linked_words(&file, &made, bias), expected);
        let Linking::On { relocations, pages } = made.linking() else { panic!("it is linked") };
        assert_eq!((relocations, pages.count() as usize), (listed.len() as u64, made.pages().count()));
        for (number, page) in made.pages() {
            let start = number.offset().0 as usize;
            let mut in_file = file[start..file.len().min(start + PAGE_SIZE)].to_vec();
            in_file.resize(PAGE_SIZE, 0);
            assert_eq!(page.file_form(), in_file, "page {number}");
        }
    }
}

/// What is served in place of the dynamic section says that nothing is left to do.
#[test]
fn what_is_left_to_the_dynamic_linker_begins_behind() {
    let file = compiled(&["-pie", "-fPIE"]).unwrap();
    let before = listed_by_readelf(&file);
    let mut served = file;
    for (number, page) in plan(&served.clone()).unwrap().pages() {
        let start = number.offset().0 as usize;
        let len = (served.len() - start).min(PAGE_SIZE);
        served[start..start + len].copy_from_slice(&page.bytes[..len]);
    }
    assert!(!before.is_empty());
    assert_eq!(listed_by_readelf(&served), BTreeMap::new());
    assert_eq!(plan(&served), Err(NotLinked::NothingToDo));
    // Symbols are still there, in their place.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    std::fs::write(&path, &served).unwrap();
    let listed = Command::new("readelf").args(["-dW"]).arg(Path::new(&path)).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(
        !text.contains("RELACOUNT") || text.lines().any(|l| l.contains("RELACOUNT") && l.ends_with(" 0")),
        "{text}"
    );
}

/// The packed table names the same words as the long one.
#[test]
fn packed_tables_name_the_same_words() {
    let flags = ["-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"];
    let Some(packed) =
        compiled(&flags).filter(|file| plan(file).is_ok() && listed_by_readelf(file).is_empty())
    else {
        return pagein_testkit::skip("this linker has no -z pack-relative-relocs");
    };
    let made = plan(&packed).unwrap();
    let words = linked_words(&packed, &made, 0);
    let Ok(Linking::On { relocations, .. }) =
        plan(&compiled(&flags[..2]).unwrap()).map(|plan| plan.linking())
    else {
        panic!("the same program without packed tables is linked")
    };
    assert_eq!(words.len() as u64, relocations);
    let program = Program::parse_file(&packed).unwrap();
    let is_mapped =
        |at: &u64| program.segments.iter().any(|s| (s.vaddr.0..s.vaddr.0 + s.mem_size).contains(at));
    assert!(words.values().all(is_mapped), "{words:x?}");
}

#[test]
fn programs_that_are_left_alone_say_why() {
    let fixed = compiled(&["-no-pie", "-fno-pie"]).unwrap();
    assert_eq!(plan(&fixed), Err(NotLinked::Fixed));
    let file = compiled(&["-pie", "-fPIE"]).unwrap();
    let program = Program::parse_file(&file).unwrap();
    let dynamic = program.dynamic.clone().unwrap();
    let segment =
        program.segments.iter().find(|s| s.vaddr <= dynamic.start && dynamic.end.0 <= s.vaddr.0 + s.mem_size);
    let segment = segment.unwrap();
    let at = (dynamic.start.0 - segment.vaddr.0 + segment.offset.0) as usize;
    let tag = |tag: u64| (at..).step_by(16).find(|&at| file[at..at + 8] == tag.to_le_bytes()).unwrap();
    let with = |changes: &[(usize, u64)]| {
        let mut file = file.clone();
        for (at, value) in changes {
            file[*at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        plan(&file)
    };
    let table = u64::from_le_bytes(file[tag(7) + 8..][..8].try_into().unwrap()) as usize;
    // The table lies in the first segment, whose addresses are file offsets.
    let text = program.segments.iter().find(|s| s.permissions[2]).unwrap().vaddr.0;
    let first = u64::from_le_bytes(file[table..][..8].try_into().unwrap());
    assert!(with(&[]).is_ok());
    assert_eq!(with(&[(tag(9), 22)]), Err(NotLinked::ReadOnly), "DT_RELAENT made DT_TEXTREL");
    assert_eq!(with(&[(table, text & !7)]), Err(NotLinked::ReadOnly));
    assert_eq!(with(&[(table, first + 4)]), Err(NotLinked::Unaligned));
    assert_eq!(with(&[(table + 24, first)]), Err(NotLinked::Twice));
    assert_eq!(with(&[(table, 1 << 40)]), Err(NotLinked::Malformed));
    assert_eq!(with(&[(tag(7) + 8, u64::MAX - 20)]), Err(NotLinked::Malformed));
    assert_eq!(with(&[(tag(0x6fff_fff9) + 8, 1 << 30)]), Err(NotLinked::Malformed), "DT_RELACOUNT");
    assert_eq!(with(&[(tag(9), 7)]), Err(NotLinked::Malformed), "two DT_RELA");
    assert_eq!(with(&[(tag(8) + 8, 0), (tag(0x6fff_fff9) + 8, 0)]), Err(NotLinked::NothingToDo));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A damaged program is refused, or what is made of it can be undone.
    #[test]
    fn damage_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..8)) {
        static FILE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| compiled(&["-pie", "-fPIE"]).unwrap());
        let program = Program::parse_file(&FILE).unwrap();
        let mut file = FILE.clone();
        // Half of the damage in the dynamic section and the tables, which lie in the first pages of their segments.
        for (index, value) in changes {
            let len = file.len() / 8;
            let at = if value & 1 == 0 { index.index(len) } else {
                let dynamic = program.dynamic.as_ref().unwrap();
                let segment = program.segments.iter().rev().find(|s| s.vaddr <= dynamic.start).unwrap();
                let start = (dynamic.start.0 - segment.vaddr.0 + segment.offset.0) as usize / 8;
                start + index.index(64).min(len - start - 1)
            };
            file[at * 8..at * 8 + 8].copy_from_slice(&(value >> (value & 0x30)).to_le_bytes());
        }
        if let Ok(plan) = LinkPlan::new(&file, &program) {
            for (number, page) in plan.pages() {
                let start = number.offset().0 as usize;
                let end = file.len().min(start + PAGE_SIZE);
                prop_assert_eq!(&page.file_form()[..end - start], &file[start..end]);
            }
        }
    }
}
