//! Plans from recordings of a real program: what is learned from some of its jobs is worth something to them and to the others.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pagein_model::{Access, FirstTouch};

use super::*;

/// One job a line: its name, a colon, its pages in touch order.
const GIT: &str = include_str!("../../fixtures/git.pages");
const GIT_PAGES: u32 = 907;

fn jobs() -> Vec<Trace> {
    let touch = |page: &str| FirstTouch {
        time_us: 0,
        page: PageNo(page.parse().expect("a page number")),
        access: Access::Read,
        process: 1,
        thread: 1,
    };
    let jobs = GIT.lines().filter_map(|line| line.split_once(": ").filter(|_| !line.starts_with('#')));
    jobs.map(|(_, pages)| Trace {
        touches: pages.split_whitespace().map(touch).collect(),
        ..Trace::default()
    })
    .collect()
}

fn plan(traces: &[Trace], min_probability: f64) -> Plan {
    Plan::of(&BTreeSet::from([PageNo(0)]), traces, GIT_PAGES, min_probability, 16)
}

/// The job that is left out, and the others.
fn leave_one_out() -> impl Iterator<Item = (Trace, Vec<Trace>)> {
    let jobs = jobs();
    (0..jobs.len()).map(move |at| {
        let mut others = jobs.clone();
        (others.remove(at), others)
    })
}

/// The groups of what is not hot.
fn cold(plan: &Plan) -> &[Vec<PageNo>] {
    &plan.groups[..plan.groups.len() - plan.hot_frames.len()]
}

/// Groups that a job demands, and the pages that come with them.
fn demanded(groups: &[Vec<PageNo>], job: &Trace) -> (usize, usize) {
    let touched: HashSet<PageNo> = job.pages().collect();
    let groups = groups.iter().filter(|group| group.iter().any(|page| touched.contains(page)));
    groups.fold((0, 0), |(count, pages), group| (count + 1, pages + group.len()))
}

/// By the mean of the relative positions in the traces, as pages were ordered before.
fn interleaved(traces: &[Trace]) -> Vec<PageNo> {
    let mut sums: BTreeMap<PageNo, (f64, f64)> = BTreeMap::new();
    for trace in traces {
        for (rank, page) in trace.pages().enumerate() {
            let (count, sum) = sums.entry(page).or_default();
            *count += 1.0;
            *sum += rank as f64 / trace.touches.len() as f64;
        }
    }
    let mut order: Vec<(f64, PageNo)> =
        sums.iter().map(|(page, (count, sum))| (sum / count, *page)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.into_iter().map(|(_, page)| page).collect()
}

/// Pages that come up to the last one that the job needs.
fn waits_for(order: &[PageNo], job: &Trace) -> usize {
    let touched: HashSet<PageNo> = job.pages().collect();
    order.iter().rposition(|page| touched.contains(page)).map_or(0, |last| last + 1)
}

#[test]
fn the_fixture_is_what_it_says() {
    let jobs = jobs();
    assert_eq!(jobs.len(), 6);
    assert!(jobs.iter().all(|job| job.touches.len() > 100 && job.pages().all(|page| page.0 < GIT_PAGES)));
}

#[test]
fn a_recorded_job_finds_all_of_it_in_the_hot_part_and_waits_for_less_of_the_others() {
    for (_, recorded) in leave_one_out() {
        let plan = plan(&recorded, 0.1);
        let (hot, before) = (plan.hot_frames.concat(), interleaved(&recorded));
        let mut sums = [0, 0, 0];
        for job in &recorded {
            assert_eq!(demanded(cold(&plan), job).0, 0);
            sums[0] += job.touches.len();
            sums[1] += waits_for(&hot, job);
            sums[2] += waits_for(&before, job);
        }
        // Of the pages that a job waits for and does not need at least a third is spared.
        assert!(3 * (sums[1] - sums[0]) < 2 * (sums[2] - sums[0]), "{sums:?}");
    }
}

#[test]
fn what_few_jobs_touched_lies_by_jobs_if_it_is_not_hot() {
    let recorded = jobs();
    let plan = plan(&recorded, 0.5);
    let hot: HashSet<PageNo> = plan.hot_frames.concat().into_iter().collect();
    let mut warm = interleaved(&recorded);
    warm.retain(|page| !hot.contains(page));
    let by_touch: Vec<Vec<PageNo>> = warm.chunks(16).map(<[PageNo]>::to_vec).collect();
    warm.sort();
    let by_number: Vec<Vec<PageNo>> = warm.chunks(16).map(<[PageNo]>::to_vec).collect();
    let requests = |groups: &[Vec<PageNo>]| recorded.iter().map(|job| demanded(groups, job).0).sum::<usize>();
    let learned = requests(cold(&plan));
    assert!(3 * learned < 2 * requests(&by_touch), "{learned} and {}", requests(&by_touch));
    assert!(3 * learned < 2 * requests(&by_number), "{learned} and {}", requests(&by_number));
}

#[test]
fn another_job_gets_less_that_it_does_not_need_for_hardly_more_requests() {
    let (mut ours, mut chunked) = ((0, 0), (0, 0));
    for (job, recorded) in leave_one_out() {
        // One recorded job: much is cold.
        for recorded in recorded.chunks(1) {
            let plan = plan(recorded, 0.1);
            let mut pages = cold(&plan).concat();
            pages.sort();
            let chunks: Vec<Vec<PageNo>> = pages.chunks(16).map(<[PageNo]>::to_vec).collect();
            let add = |sum: (usize, usize), more: (usize, usize)| (sum.0 + more.0, sum.1 + more.1);
            ours = add(ours, demanded(cold(&plan), &job));
            chunked = add(chunked, demanded(&chunks, &job));
        }
    }
    assert!(ours.1 * 10 < chunked.1 * 9, "at least a tenth fewer pages: {ours:?} and {chunked:?}");
    assert!(ours.0 * 10 < chunked.0 * 13, "{ours:?} and {chunked:?}");
}
