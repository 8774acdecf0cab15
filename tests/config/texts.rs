//! A configuration's texts, gathered by one and read by another: who reads them needs no file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adit::config::{Config, Problems, Texts};

use crate::{Fixtures, good};

/// The texts of a file, as another process gets them.
fn handed_over(path: &Path) -> Texts {
    let bytes = postcard::to_stdvec(&Texts::gather(path)).unwrap();
    postcard::from_bytes(&bytes).unwrap()
}

fn is_a_prober_s(path: &Path) -> bool {
    !path.file_name().unwrap().to_string_lossy().starts_with("reflect-")
}

#[test]
fn every_good_file_means_the_same_when_it_is_gone() {
    let fixtures = Fixtures::new();
    let files: Vec<_> = fixtures.files("ok").into_iter().filter(|path| is_a_prober_s(path)).collect();
    let known: Vec<_> = files.iter().map(|path| good(Config::load(path)).effective()).collect();
    let texts: Vec<_> = files.iter().map(|path| handed_over(path)).collect();
    drop(fixtures);
    assert!(known.iter().any(|known| known.contains("key_out_file")) && known.len() > 3);
    for (texts, known) in texts.iter().zip(known) {
        assert_eq!(good(Config::of_texts(texts)).effective(), known);
    }
}

#[test]
fn every_bad_file_is_as_wrong_when_it_is_gone() {
    let fixtures = Fixtures::new();
    let mut files: Vec<_> = fixtures.files("bad").into_iter().filter(|path| is_a_prober_s(path)).collect();
    files.push(fixtures.path("there-is-none.toml"));
    let refused = |outcome: Result<Config, Problems>| outcome.map(drop).unwrap_err();
    let known: Vec<_> = files.iter().map(|path| refused(Config::load(path))).collect();
    let texts: Vec<_> = files.iter().map(|path| handed_over(path)).collect();
    drop(fixtures);
    assert!(known.len() > 10);
    for (texts, known) in texts.iter().zip(known) {
        assert_eq!(refused(Config::of_texts(texts)), known);
    }
}

#[test]
fn the_keys_are_those_of_the_gathering() {
    let fixtures = Fixtures::new();
    let path = fixtures.files("ok").into_iter().find(|path| fs::read_to_string(path).unwrap().contains("key_out_file"));
    let path = path.unwrap();
    let material = |config: Config| {
        let of = |tunnel: adit::config::Tunnel| Some(tunnel.esp?.material?.outbound_key());
        config.tunnels.into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let texts = handed_over(&path);
    let known = material(good(Config::load(&path)));
    assert!(!known.is_empty());
    for key in fixtures.files("keys") {
        fs::write(key, "not a key any more").unwrap();
    }
    assert!(Config::load(&path).is_err());
    assert_eq!(material(good(Config::of_texts(&texts))), known);
}

#[test]
fn a_name_that_is_no_text_is_handed_over_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"adit\xff.toml"));
    fs::write(&path, "tunnel = 1\n").unwrap();
    let problems = Config::of_texts(&handed_over(&path)).map(drop).unwrap_err();
    assert_eq!(problems.iter().map(|problem| problem.file.clone()).collect::<Vec<_>>(), [path]);
}
