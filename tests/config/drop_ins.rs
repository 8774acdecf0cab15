//! Files and their drop-ins.

use std::fs;
use std::path::Path;

use adit::config::Config;
use tempfile::TempDir;

use crate::good;

fn tunnel(name: &str, octet: u8) -> String {
    format!(
        "[[tunnel]]\nname = \"{name}\"\nlocal_endpoint = \"198.51.100.1\"\nremote_endpoint = \"203.0.113.{octet}\"\n\
         interface_address = \"10.100.0.8/31\"\n"
    )
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("conf.d")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn drop_ins_are_laid_over_the_file_in_the_order_of_their_names() {
    let main = "[daemon]\nsocket = \"/a\"\nstate_dir = \"/s\"\n[defaults.health_check]\nrate = \"low\"\n".to_owned();
    let main = main + &tunnel("one", 1);
    let route = "[[route]]\nprefix = \"10.0.0.0/8\"\ntunnel = \"three\"\npriority = 1\n";
    let folder = folder(&[
        ("adit.toml", &main),
        ("conf.d/20.toml", &format!("defaults.health_check.early_retry = false\n{}", tunnel("three", 3))),
        ("conf.d/10.toml", &format!("daemon.socket = \"/c\"\n{}{route}", tunnel("two", 2))),
        ("conf.d/.30.toml", "nonsense"),
        ("conf.d/README", "nonsense"),
        ("other.toml", &main),
    ]);
    let config = good(Config::load(&folder.path().join("adit.toml")));
    assert_eq!((config.daemon.socket.as_path(), config.daemon.state_dir.as_path()), (Path::new("/c"), Path::new("/s")));
    assert_eq!(config.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect::<Vec<_>>(), ["one", "two", "three"]);
    assert!(config.tunnels.iter().all(|tunnel| tunnel.check.interval.as_secs() == 60 && !tunnel.check.early_retry));
    assert_eq!(config.routes[0].tunnel, 2);
    // A file of another name stands alone.
    assert_eq!(good(Config::load(&folder.path().join("other.toml"))).tunnels.len(), 1);
}

#[test]
fn a_problem_names_the_file_that_it_is_in() {
    let drop_in = format!("{}ttl = 0\n", tunnel("one", 2));
    let folder = folder(&[("adit.toml", &tunnel("one", 1)), ("conf.d/10.toml", &drop_in)]);
    let main = folder.path().join("adit.toml");
    let problems = Config::load(&main).err().unwrap();
    let places: Vec<_> = problems.iter().map(|problem| (problem.file.clone(), problem.place.unwrap())).collect();
    let in_drop_in = |place| (folder.path().join("conf.d/10.toml"), place);
    assert_eq!(places, [in_drop_in((2, 8)), in_drop_in((6, 7))]);
    assert!(problems.to_string().contains(&format!("line 2 of {}", main.display())), "{problems}");
}

#[test]
fn syntax_errors_of_all_files_are_reported_together() {
    let folder = folder(&[("adit.toml", "a = \n"), ("conf.d/10.toml", "[x\n")]);
    let problems = Config::load(&folder.path().join("adit.toml")).err().unwrap();
    let files: Vec<_> = problems.iter().map(|problem| problem.file.file_name().unwrap().to_owned()).collect();
    assert!(files.contains(&"adit.toml".into()) && files.contains(&"10.toml".into()), "{problems}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let folder = folder(&[]);
    let path = folder.path().join("adit.toml");
    let problems = Config::load(&path).err().unwrap().to_string();
    assert!(problems.starts_with(&format!("{}: cannot be read: No such file", path.display())), "{problems}");
    fs::write(&path, b"[daemon]\nsocket = \"\xff\"\n").unwrap();
    let problems = Config::load(&path).err().unwrap().to_string();
    assert!(problems.starts_with(&format!("{}:2:11: this is not UTF-8", path.display())), "{problems}");
}
