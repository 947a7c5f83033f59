//! Takes compiled kernels into the program, where `LOCKSTEP_CUBINS` names a folder of them, as
//! `tools/cuda_compile.py --out` makes it. Such a program needs no compiler where it runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LOCKSTEP_CUBINS");
    let mut table = String::from("&[\n");
    if let Some(folder) = env::var_os("LOCKSTEP_CUBINS").filter(|folder| !folder.is_empty()) {
        println!("cargo:rerun-if-changed={}", Path::new(&folder).display());
        let paths = images(Path::new(&folder));
        assert!(
            !paths.is_empty(),
            "LOCKSTEP_CUBINS: {folder:?} has no .cubin"
        );
        for path in paths {
            add(&mut table, &path);
        }
    }
    table.push_str("]\n");
    let out = env::var_os("OUT_DIR").map(PathBuf::from);
    let out = out.expect("cargo says where to write");
    fs::write(out.join("images.rs"), table).expect("a folder to write to");
}

fn images(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("LOCKSTEP_CUBINS: {folder:?}: {error}"));
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let is_image = |path: &PathBuf| path.extension().is_some_and(|end| end == "cubin");
    let mut paths: Vec<PathBuf> = paths.filter(is_image).collect();
    paths.sort();
    paths
}

/// `FILE-sm_90-DIGEST.cubin` becomes a row of the table.
fn add(table: &mut String, path: &Path) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let parts: Vec<&str> = name.split('-').collect();
    let [file, architecture, digest] = parts[..] else {
        panic!("{path:?}: expected FILE-sm_90-DIGEST.cubin");
    };
    let path = fs::canonicalize(path).expect("a path that was just listed");
    let row = format!(
        "Image {{ file: {file:?}, architecture: {architecture:?}, digest: {digest:?}, \
         cubin: include_bytes!({path:?}) }},"
    );
    writeln!(table, "{row}").expect("a string grows");
}
