//! Images whose bytes are not what they were, are cut off, or are not there.

use std::path::Path;

use pagein_testkit::{Fault, Origin, Rule};
use pagein_tests::broken::{Bench, Book, assert_failed, assert_words, copy_image};

/// Every object of the book's image, the policy that reads most of it, and whether every byte of it is read.
const OBJECTS: [(&str, &str); 6] = [
    ("hot", "reordered"),
    ("groups", "reordered-paged"),
    ("groups.index", "streamed"),
    ("paged", "paged"),
    ("paged.index", "paged"),
    ("whole", "original"),
];

const READ_ALL: &str = "pages 0 400\n";

/// Positions all over an object of `len` bytes: a third of the header, then ever farther apart, then the end.
fn positions(len: usize, header: usize) -> Vec<usize> {
    let spread = (0..8).map(|step| header + step * step * (len.saturating_sub(header)) / 60);
    let mut all: Vec<usize> =
        (0..header).step_by(3).chain(spread).chain([len / 2 + 7, len - 2, len - 1]).collect();
    all.retain(|&at| at < len);
    all.sort_unstable();
    all.dedup();
    all
}

/// Whatever is wrong with the image in `image`: the output is right, or a beginning of it and an error that has `words`.
/// Returns whether it was an error.
#[track_caller]
fn never_wrong(bench: &Bench, policy: &str, image: &str, words: &[&str], what: &str) -> bool {
    let done = bench.read_book(policy, image, READ_ALL);
    let all = Book::get().all();
    assert!(all.starts_with(&done.stdout()), "{what}: wrong output: {done:?}");
    if done.code() == 0 {
        assert_eq!((done.stdout(), done.stderr()), (all, String::new()), "{what}: {done:?}");
        return false;
    }
    assert!(matches!(done.code(), 125 | 135), "{what}: {done:?}");
    let stderr = done.stderr();
    assert_eq!(stderr.lines().count(), 1, "{what}: {done:?}");
    assert_words(&stderr, words);
    true
}

#[test]
fn a_byte_is_flipped() {
    let bench = Bench::new();
    let image = bench.path("image");
    copy_image(&Book::get().image, &image);
    let place = image.to_str().unwrap();
    for (object, policy) in OBJECTS {
        let path = image.join(object);
        let good = std::fs::read(&path).unwrap();
        let header = if matches!(object, "hot" | "whole") { 24 } else { 4 };
        let mut errors = 0;
        for at in positions(good.len(), header) {
            // One bit here, all bits there.
            let mask = if at % 2 == 0 { 0xff } else { 1 << (at % 8) };
            let mut bad = good.clone();
            bad[at] ^= mask;
            std::fs::write(&path, bad).unwrap();
            let what = format!("{object}, byte {at} of {}", good.len());
            errors += u32::from(never_wrong(&bench, policy, place, &[place, object], &what));
            let verify = bench.run(["verify", place]);
            assert_eq!(verify.code(), 125, "{what}: verify finds nothing: {verify:?}");
            assert_words(&(verify.stdout() + &verify.stderr()), &[place]);
        }
        assert!(errors > 3, "{object} was hardly read under {policy}");
        std::fs::write(&path, good).unwrap();
    }
    let _ = bench.run(["verify", place]).success();
}

/// The manifest decides which page is where, so one that was not cut this way must never be believed.
#[test]
fn a_byte_of_the_manifest_is_flipped() {
    let bench = Bench::new();
    let book = Book::get();
    let hot = std::fs::read(book.image.join("hot")).unwrap();
    let len = 16 + u32::from_le_bytes(hot[8..12].try_into().unwrap()) as usize;
    let good = pagein_image::Manifest::decode(&hot[..len]).unwrap();
    let mut survived = Vec::new();
    for at in 0..len {
        let mut bad = hot[..len].to_vec();
        bad[at] ^= 1 << (at % 8);
        // One bit of zstd's header means nothing.
        if pagein_image::Manifest::decode(&bad).is_ok_and(|manifest| manifest != good) {
            survived.push(at);
        }
    }
    assert!(survived.is_empty(), "flips that a reader of the manifest does not see: {survived:?}");
    // And in the command.
    let image = bench.path("image");
    copy_image(&book.image, &image);
    for at in (16..len).step_by(len / 12) {
        let mut bad = hot.clone();
        bad[at] = !bad[at];
        std::fs::write(image.join("hot"), bad).unwrap();
        let place = image.to_str().unwrap();
        for command in ["run", "inspect", "verify"] {
            assert_failed(&bench.run([command, place]), 125, &[place, "hot", "manifest"]);
        }
    }
    assert!(bench.cached().is_empty(), "{:?}", bench.cached());
}

#[test]
fn an_unknown_version() {
    let bench = Bench::new();
    let image = bench.path("image");
    copy_image(&Book::get().image, &image);
    for object in ["hot", "whole"] {
        let mut bytes = std::fs::read(image.join(object)).unwrap();
        bytes[7] = 99;
        std::fs::write(image.join(object), bytes).unwrap();
    }
    let place = image.to_str().unwrap();
    let words = [place, "version 99", "update pagein"];
    for command in ["run", "inspect", "verify"] {
        assert_failed(&bench.run([command, place]), 125, &words);
    }
    assert_failed(&bench.read_book("original", place, READ_ALL), 125, &words);
}

#[test]
fn an_object_is_cut_off_or_missing() {
    let bench = Bench::new();
    let image = bench.path("image");
    copy_image(&Book::get().image, &image);
    let served = Origin::serve(bench.path(""));
    let directory = image.to_str().unwrap().to_owned();
    for (object, policy) in OBJECTS {
        let path = image.join(object);
        let good = std::fs::read(&path).unwrap();
        for place in [&directory, &served.url("image")] {
            for len in [0, 15, good.len() / 2, good.len() - 1] {
                std::fs::write(&path, &good[..len]).unwrap();
                let what = format!("{object}, {len} of {} bytes at {place}", good.len());
                let failed = never_wrong(&bench, policy, place, &[place, object], &what);
                assert!(failed, "{what}: not seen");
                // It tries for a while, since a cut transfer may also be the network's.
                if *place == directory && len > 15 {
                    let verify = bench.run(["verify", place]);
                    assert_eq!(verify.code(), 125, "{what}: {verify:?}");
                    assert_words(&(verify.stdout() + &verify.stderr()), &[place, object]);
                }
            }
            std::fs::remove_file(&path).unwrap();
            let words = [place.as_str(), object, "not found", "whole image was uploaded"];
            let done = bench.read_book(policy, place, READ_ALL);
            assert!(matches!(done.code(), 127 | 135), "{object}: {done:?}");
            assert_words(&done.stderr(), &words);
            let verify = bench.run(["verify", place]);
            assert!(matches!(verify.code(), 125 | 127), "{object}: {verify:?}");
            assert_words(&(verify.stdout() + &verify.stderr()), &words);
            std::fs::write(&path, &good).unwrap();
        }
    }
}

#[test]
fn page_files_are_wrong() {
    let bench = Bench::new();
    let image = bench.path("files");
    copy_image(&Book::get().page_files, &image);
    let place = image.to_str().unwrap();
    let files: Vec<_> = pagein_tests::broken::files_below(&image)
        .into_iter()
        .filter(|name| name.starts_with("pages/"))
        .collect();
    assert!(files.len() > 20, "{files:?}");
    let spoil: [fn(&Path, &[u8]); 4] = [
        |path, good| std::fs::write(path, [&good[..7], &[!good[7]], &good[8..]].concat()).unwrap(),
        |path, good| std::fs::write(path, &good[1..]).unwrap(),
        |path, good| std::fs::write(path, [good, b"x"].concat()).unwrap(),
        |path, _| std::fs::remove_file(path).unwrap(),
    ];
    for (number, name) in files.iter().step_by(files.len() / 8).enumerate() {
        let path = image.join(name);
        let good = std::fs::read(&path).unwrap();
        spoil[number % 4](&path, &good);
        let errors = ["paged", "reordered-paged"]
            .map(|policy| never_wrong(&bench, policy, place, &[place, name], &format!("{number}: {name}")));
        assert!(errors.contains(&true), "{name} belongs to no group");
        let verify = bench.run(["verify", place]);
        assert_eq!(verify.code(), 125, "{verify:?}");
        assert_words(&verify.stdout(), &[name]);
        std::fs::write(&path, good).unwrap();
    }
}

#[test]
fn another_image_than_the_pinned_one() {
    let bench = Bench::new();
    let image = Book::get().image.to_str().unwrap();
    let json = bench.run(["inspect", "--json", image]).success();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let digest = json["digest"].as_str().unwrap();
    let done = bench.read_book("auto", &format!("{image}#{digest}"), "page 3\n").success();
    assert_eq!(done.stdout(), Book::get().page(3) + "\n");
    let other = digest.chars().rev().collect::<String>();
    for policy in ["auto", "original", "paged"] {
        let done = bench.read_book(policy, &format!("{image}#{other}"), "page 3\n");
        assert_failed(&done, 125, &[image, "pinned", digest, &other]);
    }
    for command in ["inspect", "verify"] {
        assert_failed(&bench.run([command, &format!("{image}#{other}")]), 125, &["pinned", digest, &other]);
    }
}

/// What the network does to bytes once, it need not do again.
#[test]
fn a_byte_is_flipped_on_the_way() {
    let bench = Bench::new();
    let book = Book::get();
    for (object, policy) in
        [("hot", "streamed"), ("hot", "reordered"), ("groups", "reordered"), ("paged", "paged")]
    {
        let origin = Origin::serve(&book.root);
        let len = std::fs::metadata(book.image.join(object)).unwrap().len();
        origin.rule(Rule::new(&format!("book/{object}"), Fault::Flip(len / 2)));
        let url = origin.url("book");
        never_wrong(&bench, policy, &url, &[&url, object, "damaged"], &format!("{object} under {policy}"));
    }
}

/// The same on a program that nobody here wrote, which reads its pages in its own order.
#[test]
fn a_byte_of_python_is_flipped() {
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        return pagein_testkit::skip("there is no /usr/bin/python3");
    }
    let bench = Bench::new();
    let job = ["--", "-c", "import json; print(json.dumps(list(range(50)))); print(sum(range(1000)))"];
    let _ = bench.run([["record", "-o", "t", "--", python].as_slice(), &job[1..]].concat()).success();
    let _ = bench.run(["split", "--level=1", "--trace", "t", "-o", "image", python]).success();
    let run = |policy| bench.run([["run", "--policy", policy, "image"].as_slice(), &job].concat());
    let right = run("streamed").success().stdout();
    for (object, policy) in [("hot", "reordered"), ("groups", "reordered-paged"), ("paged", "paged")] {
        let path = bench.path("image").join(object);
        let good = std::fs::read(&path).unwrap();
        let mut errors = 0;
        for step in 1..8 {
            let mut bad = good.clone();
            let at = good.len() * step / 8;
            bad[at] ^= 1 << step;
            std::fs::write(&path, bad).unwrap();
            let done = run(policy);
            // It prints all at once, at its end.
            let (stdout, stderr) = (done.stdout(), done.stderr());
            if done.code() == 0 {
                assert_eq!((&stdout, stderr.as_str()), (&right, ""), "{object}, byte {at}");
                continue;
            }
            errors += 1;
            assert!(
                matches!(done.code(), 125 | 135) && right.starts_with(&stdout),
                "{object}, byte {at}: {done:?}"
            );
            assert_words(&stderr, &["pagein: ", "image/", object, "is damaged"]);
            assert_eq!(stderr.lines().count(), 1, "{object}, byte {at}: {done:?}");
        }
        assert!(errors > 1 || object == "paged", "{object} was hardly read under {policy}");
        std::fs::write(&path, good).unwrap();
    }
}
