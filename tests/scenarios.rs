//! Runs every file of `fixtures/scenarios` in virtual time; its README says what they may hold.

mod scenario;
mod sim;

#[test]
fn every_scenario_ends_as_it_says() {
    let mut files: Vec<_> =
        std::fs::read_dir("fixtures/scenarios").unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= 18, "only {} scenarios", files.len());
    let wrong: Vec<String> = files.iter().flat_map(|path| scenario::run(path)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The runner sees what does not fit: a scenario with every kind of wrong expectation.
#[test]
fn a_scenario_that_is_wrong_fails() {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let text = r#"
        about = "wrong in every way"
        until = "20s"
        tunnel = [{ name = "one" }]
        route = [{ prefix = "10.0.0.0/8", tunnel = "one", priority = 1 }]
        timeline = [{ at = "10s", tunnel = "one", cut = true }]
        expect = [
            { tunnel = "one", becomes = "degraded", between = ["0s", "1s"] },
            { tunnel = "one", becomes = "down", between = ["30s", "40s"] },
            { prefix = "10.0.0.0/8", carried_by = ["one"], between = ["0s", "1s"] },
        ]
        check = [
            { at = "5s", states = { one = "down" } },
            { at = "5s", traffic = { "10.1.1.1" = ["two"] } },
            { at = "5s", priorities = { "10.1.1.1" = { one = 2 } } },
            { at = "5s", counters = { one = { lost = "at least 1", sent = 0 } } },
            { at = "5s", faults = ["send"] },
        ]
    "#;
    std::fs::write(file.path(), text).unwrap();
    let wrong = scenario::run(file.path());
    assert_eq!(wrong.len(), 10, "{wrong:#?}");
}
