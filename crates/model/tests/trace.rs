//! The trace format: what is written is read back; other texts are errors that name the line.

use pagein_image::{Digest, PageNo};
use pagein_model::{Access, FirstTouch, Trace};
use proptest::prelude::*;

prop_compose! {
    fn traces()(
        program in "\\PC{0,20}",
        command in prop::collection::vec("\\PC{0,10}", 0..4),
        reads_self in any::<bool>(),
        ended_us in any::<Option<u64>>(),
        touched in prop::collection::btree_map(0u32..1000, (any::<u64>(), 0usize..3, any::<u32>(), any::<u32>()), 0..50),
    ) -> Trace {
        let touches = touched.into_iter().map(|(page, (time_us, access, process, thread))| FirstTouch {
            time_us,
            page: PageNo(page),
            access: [Access::Exec, Access::Read, Access::Write][access],
            process,
            thread,
        });
        Trace { program, size: 1000 * 4096, digest: Digest::of(b"x"), command, reads_self, ended_us, touches: touches.collect() }
    }
}

proptest! {
    #[test]
    fn a_trace_is_read_back(trace in traces()) {
        prop_assert_eq!(trace.to_string().parse::<Trace>().unwrap(), trace);
    }

    #[test]
    fn a_trace_without_its_end_is_an_error(trace in traces(), cut in any::<prop::sample::Index>()) {
        let text = trace.to_string();
        let lines: Vec<&str> = text.lines().collect();
        let kept = lines[..cut.index(lines.len())].join("\n");
        if trace.touches.is_empty() && kept.contains("touches 0") {
            return Ok(());
        }
        prop_assert!(kept.parse::<Trace>().is_err());
    }

    #[test]
    fn any_text_is_a_trace_or_an_error(text in "\\PC{0,200}") {
        let _ = text.parse::<Trace>();
    }
}

#[test]
fn errors_name_the_line_and_the_remedy() {
    let newer = "pagein-trace 7\n".parse::<Trace>().unwrap_err().to_string();
    assert!(newer.contains("line 1") && newer.contains("version 7") && newer.contains("again"), "{newer}");
    let other = "hello".parse::<Trace>().unwrap_err().to_string();
    assert!(other.contains("pagein record"), "{other}");
    let twice = Trace { size: 8192, ..Trace::default() }.to_string().replace("touches 0", "touches 2")
        + "1 0 r 1 1\n2 0 w 1 1\n";
    assert_eq!(twice.parse::<Trace>().unwrap_err().line, 10);
    let ended = Trace { ended_us: Some(7), ..Trace::default() }.to_string();
    let bad = ended.replace("ended 7", "ended soon").parse::<Trace>().unwrap_err();
    assert!(bad.line == 7 && bad.why.contains("ended is a number"), "{bad}");
}

#[test]
fn a_trace_need_not_say_when_the_program_ended() {
    let ended = Trace { ended_us: Some(7), ..Trace::default() };
    let older = ended.to_string().replace("ended 7\n", "");
    assert_eq!(older.parse::<Trace>(), Ok(Trace::default()));
    assert_eq!(ended.to_string().parse::<Trace>(), Ok(ended));
}
