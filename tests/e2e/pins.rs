//! `lockstep pins` on upstreams that are made here: git directories with and without files, and plain folders.

use super::{lockstep, stderr, stdout};
use serde_json::Value;
use sha1::{Digest, Sha1};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

const TEXT: &str = "one\ntwo\nthree\n";

/// An upstream under git, its bare clone, and a list with one pin of its only file, taken from `main`.
struct World {
    folder: TempDir,
}

impl World {
    fn new() -> World {
        let world = World {
            folder: tempfile::tempdir().expect("a folder"),
        };
        fs::create_dir(world.path("up")).expect("created");
        world.git(&["init", "--quiet", "--initial-branch", "main", "."]);
        world.commit(Some(TEXT));
        fs::write(world.path("copy.txt"), TEXT).expect("written");
        world.pin("main", TEXT);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .arg("-C")
            .arg(self.path("up"))
            .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
            .args(["-c", "commit.gpgsign=false"])
            .args(args)
            .output()
            .expect("git runs");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output).trim().to_owned()
    }

    /// Makes the file what it is to be at the head, or none at all. Returns the commit.
    fn commit(&self, text: Option<&str>) -> String {
        let file = self.path("up/parts/file.txt");
        fs::create_dir_all(self.path("up/parts")).expect("created");
        match text {
            Some(text) => fs::write(file, text).expect("written"),
            None => fs::remove_file(file).expect("removed"),
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "next"]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn pin(&self, reference: &str, text: &str) {
        let blob = Sha1::digest(format!("blob {}\0{text}", text.len()));
        let list = format!(
            "[[pin]]\npath = \"copy.txt\"\nsource = \"up\"\nref = \"{reference}\"\n\
             file = \"parts/file.txt\"\ngit_blob = \"{}\"\nsha256 = \"{}\"\n",
            hex(&blob),
            hex(&sha2::Sha256::digest(text))
        );
        fs::write(self.path("pins.toml"), list).expect("written");
    }

    fn check(&self, flags: &[&str]) -> Output {
        lockstep(&["pins", "check"])
            .args(flags)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("the program starts")
    }

    /// The exit code and the only pin of the report.
    fn report(&self, upstream: &str) -> (i32, Value) {
        let output = self.check(&["--upstream", upstream, "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        assert_eq!(report["pins"].as_array().map(Vec::len), Some(1));
        assert_eq!(report["passed"], output.status.code() == Some(0));
        (
            output.status.code().expect("a code"),
            report["pins"][0].clone(),
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn copy_tree(world: &World) {
    fs::create_dir_all(world.path("tree/parts")).expect("created");
    let file = "parts/file.txt";
    fs::copy(world.path("up").join(file), world.path("tree").join(file)).expect("copied");
}

#[test]
fn same_in_a_git_directory_a_bare_one_and_a_folder() {
    let world = World::new();
    let head = world.git(&["rev-parse", "HEAD"]);
    world.git(&["clone", "--quiet", "--bare", ".", "../bare.git"]);
    copy_tree(&world);
    for (upstream, has_head) in [
        ("up", true),
        ("bare.git", true),
        ("up/.git", true),
        ("tree", false),
    ] {
        let (code, pin) = world.report(upstream);
        assert_eq!(
            (code, &pin["verdict"]),
            (0, &Value::from("same")),
            "{upstream}: {pin}"
        );
        assert_eq!(pin["own_copy"]["verdict"], "as_pinned");
        let expected = has_head.then(|| Value::from(head.as_str()));
        assert_eq!(pin["head"], expected.unwrap_or(Value::Null), "{upstream}");
    }
    let text = stdout(&world.check(&["--upstream", "up=bare.git"]));
    assert!(text.contains("same  copy.txt"), "{text}");
    assert!(text.contains("all as pinned: 1 pins, 1 same"), "{text}");
}

#[test]
fn moved_shows_the_difference() {
    let world = World::new();
    world.git(&["clone", "--quiet", "--bare", ".", "../old.git"]);
    let head = world.commit(Some("one\nTWO\nthree\n"));
    copy_tree(&world);
    for upstream in ["up", "tree"] {
        let (code, pin) = world.report(upstream);
        assert_eq!((code, &pin["verdict"]), (1, &Value::from("moved")), "{pin}");
        let diff = pin["diff"].as_str().expect("a difference");
        assert!(diff.contains("-two\n+TWO\n"), "{diff}");
    }
    assert_eq!(world.report("up").1["head"], head.as_str());
    let (code, pin) = world.report("old.git");
    assert_eq!((code, &pin["verdict"]), (0, &Value::from("same")));
    let text = stdout(&world.check(&["--upstream", "up"]));
    assert!(text.contains("moved  copy.txt"), "{text}");
    assert!(text.contains("    -two\n    +TWO\n"), "{text}");
    // Without our copy the history still has what was pinned; a folder doesn't.
    fs::remove_file(world.path("copy.txt")).expect("removed");
    let (_, pin) = world.report("up");
    assert!(
        pin["diff"]
            .as_str()
            .is_some_and(|diff| diff.contains("+TWO")),
        "{pin}"
    );
    let (_, pin) = world.report("tree");
    assert!(pin["diff"].is_null() && pin["reason"].is_string(), "{pin}");
}

#[test]
fn the_head_of_another_branch_is_another_head() {
    let world = World::new();
    world.git(&["checkout", "--quiet", "-b", "next"]);
    world.commit(Some("other\n"));
    assert_eq!(world.report("up").0, 0, "main stands where it stood");
    world.pin("next", TEXT);
    assert_eq!(world.report("up").1["verdict"], "moved");
    // A commit never moves, so the upstream's own head is asked.
    let first = world.git(&["rev-parse", "main"]);
    world.pin(&first, TEXT);
    assert_eq!(world.report("up").1["verdict"], "moved");
    world.git(&["checkout", "--quiet", "main"]);
    assert_eq!(world.report("up").1["verdict"], "same");
}

#[test]
fn gone_is_told_from_what_can_not_be_read() {
    let world = World::new();
    world.commit(None);
    fs::create_dir(world.path("tree")).expect("created");
    for upstream in ["up", "tree"] {
        let (code, pin) = world.report(upstream);
        assert_eq!((code, &pin["verdict"]), (1, &Value::from("gone")), "{pin}");
    }
    let text = stdout(&world.check(&["--upstream", "up"]));
    assert!(text.contains("gone  copy.txt"), "{text}");
}

#[test]
fn what_could_not_be_checked_is_no_pass() {
    let world = World::new();
    fs::create_dir(world.path("empty.git")).expect("created");
    for name in ["objects", "refs"] {
        fs::create_dir(world.path("empty.git").join(name)).expect("created");
    }
    fs::write(world.path("empty.git/HEAD"), "nonsense").expect("written");
    for (upstream, word) in [
        ("nowhere", "no such folder"),
        ("empty.git", "git rev-parse"),
    ] {
        let (code, pin) = world.report(upstream);
        assert_eq!(
            (code, &pin["verdict"]),
            (3, &Value::from("unchecked")),
            "{pin}"
        );
        let reason = pin["reason"].as_str().expect("a reason");
        assert!(reason.contains(word), "{reason}");
    }
    let output = world.check(&[]);
    assert_eq!(output.status.code(), Some(3));
    let text = stdout(&output);
    assert!(text.contains("could not be checked  copy.txt"), "{text}");
    assert!(text.contains("--upstream up=DIR"), "{text}");
    world.pin("no-such-branch", TEXT);
    let (code, pin) = world.report("up");
    assert_eq!((code, &pin["verdict"]), (3, &Value::from("unchecked")));
    // A tag that never had what is pinned: the pin is wrong, whatever the head has.
    world.git(&["tag", "v1"]);
    world.pin("v1", "never\n");
    let (_, pin) = world.report("up");
    assert!(
        pin["reason"]
            .as_str()
            .is_some_and(|r| r.contains("contradicts itself")),
        "{pin}"
    );
}

#[test]
fn a_folder_and_a_link_are_no_files() {
    let world = World::new();
    let file = world.path("up/parts/file.txt");
    fs::remove_file(&file).expect("removed");
    std::os::unix::fs::symlink("elsewhere", &file).expect("linked");
    world.git(&["add", "--all"]);
    world.git(&["commit", "--quiet", "--message", "a link"]);
    let (code, pin) = world.report("up");
    assert_eq!((code, &pin["verdict"]), (3, &Value::from("unchecked")));
    assert!(
        pin["reason"]
            .as_str()
            .is_some_and(|r| r.contains("is a link")),
        "{pin}"
    );
}

#[test]
fn our_own_copy_must_be_as_pinned() {
    let world = World::new();
    fs::write(world.path("copy.txt"), "one\ntwo\n3\n").expect("written");
    let (code, pin) = world.report("up");
    assert_eq!((code, &pin["verdict"]), (1, &Value::from("same")));
    assert_eq!(pin["own_copy"]["verdict"], "changed");
    let diff = pin["own_copy"]["diff"].as_str().expect("a difference");
    assert!(diff.contains("-three\n+3\n"), "{diff}");
    let text = stdout(&world.check(&["--upstream", "up"]));
    assert!(text.contains("own copy changed"), "{text}");
    fs::remove_file(world.path("copy.txt")).expect("removed");
    let (code, pin) = world.report("up");
    assert_eq!(
        (code, &pin["own_copy"]["verdict"]),
        (1, &Value::from("gone"))
    );
}

#[test]
fn a_terminal_is_not_commanded_by_an_upstream() {
    let world = World::new();
    world.commit(Some("one\n\x1b]0;owned\x07\n"));
    let text = stdout(&world.check(&["--upstream", "up"]));
    assert!(
        !text.contains('\x1b') && text.contains("\\u{1b}]0;owned"),
        "{text}"
    );
}

#[test]
fn lists_that_can_not_be_used() {
    let world = World::new();
    let good = fs::read_to_string(world.path("pins.toml")).expect("written before");
    let cases = [
        (String::new(), "nothing to check"),
        (
            good.replace("ref = \"main\"", "ref = main"),
            "pins.toml:4: ",
        ),
        (
            good.replace("sha256 =", "sha265 ="),
            "pins.toml:7: unknown field pin.sha265",
        ),
        (
            good.replace("source = \"up\"\n", ""),
            "pins.toml:1: pin.source is missing",
        ),
        (
            good.replace("\"copy.txt\"", "\"../copy.txt\""),
            "pins.toml:2: pin.path",
        ),
        (
            good.replace("\"copy.txt\"", "7"),
            "pins.toml:2: pin.path is integer",
        ),
    ];
    for (list, word) in cases {
        fs::write(world.path("pins.toml"), list).expect("written");
        let output = world.check(&["--upstream", "up"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{word}: {text}");
        assert!(text.contains(word), "{word}: {text}");
        assert!(text.contains("docs/pins.md"), "{text}");
    }
    let output = world.check(&["no-such.toml"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    fs::write(world.path("pins.toml"), good).expect("written");
    let output = world.check(&["--upstream", "pu=up"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("no pin has the source"),
        "{}",
        stderr(&output)
    );
    assert!(Path::new(&world.path("up")).is_dir());
}
