//! The tracer sees what runs, in every thread and process, once, and does not change what the program does.

use std::collections::HashMap;
use std::process::Command;

use crate::support::{clone_to, compile, source};
use pagein_relayout::{Functions, points};
use pagein_uffd::breakpoint::{Breakpoints, TraceError, trace};

#[test]
fn threads_children_and_handlers_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, blocks) in [("-pie", false), ("-no-pie", false), ("-pie", true), ("-static-pie", false)] {
        let file = dir.path().join("program");
        let bytes = compile(&source("processes.c"), &file, &["-O1", kind]);
        let functions = Functions::read(&bytes).unwrap();
        let points = points(&bytes, blocks).unwrap();
        let watch = Breakpoints { program: &file, entry: points.entry, addresses: &points.addresses };
        let trace = trace(Command::new(&file), watch).unwrap();
        assert_eq!(trace.status.code(), Some(39), "{kind}: 3 from the child, 9 from the new image");
        assert_eq!(trace.images, 2, "{kind}: the program and the program that it executes");

        let mut seen = HashMap::new();
        for hit in &trace.hits {
            let f = &functions.as_slice()[functions.find(hit.address).unwrap()];
            if hit.address == f.start {
                *seen.entry(f.name.clone().unwrap_or_default()).or_insert(0) += 1;
            }
        }
        for name in
            ["main", "only_in_child", "only_in_thread", "only_in_handler", "only_after_exec", "everywhere"]
        {
            assert_eq!(seen.get(name), Some(&1), "{kind}: {name}");
        }
        assert_eq!(seen.get("never_called"), None);
        let order = |name: &str| {
            let start = functions.as_slice().iter().find(|f| f.name.as_deref() == Some(name)).unwrap().start;
            trace.hits.iter().position(|h| h.address == start)
        };
        assert!(
            order("only_in_handler") < order("only_in_thread")
                && order("only_in_thread") < order("only_in_child")
        );
        let main = functions.as_slice().iter().find(|f| f.name.as_deref() == Some("main")).unwrap();
        let child = &trace.hits[order("only_in_child").unwrap()];
        assert!((main.start..main.end()).contains(&child.caller), "{kind}: main calls it");
    }
}

#[test]
fn a_profile_by_breakpoints_leads_to_fewer_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let bytes = compile(&source("features.c"), &old, &["-O2", "-static-pie", "-fPIE"]);
    let pages = |file: &std::path::Path| {
        let points = points(&std::fs::read(file).unwrap(), true).unwrap();
        let watch = Breakpoints { program: file, entry: points.entry, addresses: &points.addresses };
        let mut command = Command::new(file);
        command.stdout(std::process::Stdio::null());
        let hits = trace(command, watch).unwrap().hits;
        let length = |address| points.lengths[points.addresses.binary_search(&address).unwrap()];
        let order: Vec<u64> = hits.iter().map(|h| h.address).collect();
        (pagein_relayout::Touched::of(hits.iter().map(|h| (h.address, length(h.address)))), order)
    };
    let (before, order) = pages(&old);
    clone_to(&bytes, &order, &new);
    let (after, _) = pages(&new);
    assert!(after.pages * 10 < before.pages * 7, "{} pages before, {} after", before.pages, after.pages);
}

#[test]
fn errors_name_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let watch = |program| Breakpoints { program, entry: 0, addresses: &[] };
    let error = trace(Command::new("true"), watch(&missing)).unwrap_err();
    assert!(matches!(error, TraceError::Program(..)), "{error}");
    let file = dir.path().join("program");
    compile(&source("processes.c"), &file, &[]);
    let error = trace(Command::new(&missing), watch(&file)).unwrap_err();
    assert!(matches!(error, TraceError::Start(..)), "{error}");
    let error = trace(Command::new("true"), watch(&file)).unwrap_err();
    assert!(matches!(error, TraceError::NotExecuted(_)), "{error}");
}
