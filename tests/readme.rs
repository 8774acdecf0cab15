//! The README shows what is there: its configurations are fixtures that load, its commands exist.

mod shown;

const README: &str = include_str!("../README.md");

#[test]
fn the_configurations_shown_are_the_fixtures_that_load() {
    let names =
        ["readme.toml", "readme-kernel.toml", "readme-endpoints.toml", "readme-notify.toml", "reflect-readme.toml"];
    for name in names {
        let text = std::fs::read_to_string(format!("fixtures/config/ok/{name}")).unwrap();
        assert!(README.contains(text.trim_end()), "README.md does not show fixtures/config/ok/{name} as it is");
    }
}

#[test]
fn the_configuration_of_the_metrics_is_the_fixture_that_loads() {
    let text = std::fs::read_to_string("fixtures/config/ok/monitoring.toml").unwrap();
    for (name, page) in [("README.md", README), ("docs/monitoring.md", include_str!("../docs/monitoring.md"))] {
        assert!(page.contains(text.trim_end()), "{name} does not show fixtures/config/ok/monitoring.toml as it is");
    }
}

#[test]
fn the_commands_shown_exist() {
    // In code only: blocks of commands, and spans of it in the text.
    let blocks = README.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let spans = README.split('`').skip(1).step_by(2).filter(|span| !span.contains('\n'));
    let shown = shown::commands(blocks.flat_map(str::lines).chain(spans));
    assert!(shown >= 10, "only {shown} commands are shown");
}

#[test]
fn the_two_commands_are_shown() {
    assert!(README.contains("\ncargo run --release -- demo "));
    assert!(README.contains("\ncargo test "));
}
