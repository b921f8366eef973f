//! The API uses the engine, never the store: `Engine::reads` is the one place where a caller's permissions can be checked.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// Whether a line names the trait itself. Types such as `StoreError`, and the variant `EngineError::Store`, are data.
fn names_the_store(line: &str) -> bool {
    let line = line.replace("EngineError::Store", "");
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "Store" || word.ends_with("Store")) || line.contains(".store")
}

#[test]
fn no_source_file_names_the_store() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 20, "the sources were not found: {files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (line, number) in text.lines().zip(1..) {
            assert!(!names_the_store(line), "{}:{number}: {line}", file.display());
        }
    }
}

#[test]
fn the_check_tells_the_store_from_its_data() {
    for line in [
        "use fermata_store::Store;",
        "fn f(store: &dyn fermata_store::Store)",
        "SqliteStore::open()",
        "web.engine.store().run(id)",
    ] {
        assert!(names_the_store(line), "{line}");
    }
    for line in [
        "use fermata_store::{StoreError, reads::RunRecord};",
        "nothing is stored",
        "Err(EngineError::Store(StoreError::Unknown(_)))",
    ] {
        assert!(!names_the_store(line), "{line}");
    }
}
