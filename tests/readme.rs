//! The README shows what is there: its configurations are fixtures that load, its commands exist.

use clap::CommandFactory;

const README: &str = include_str!("../README.md");

#[test]
fn the_configurations_shown_are_the_fixtures_that_load() {
    for name in ["readme.toml", "readme-kernel.toml", "readme-endpoints.toml", "reflect-readme.toml"] {
        let text = std::fs::read_to_string(format!("fixtures/config/ok/{name}")).unwrap();
        assert!(README.contains(text.trim_end()), "README.md does not show fixtures/config/ok/{name} as it is");
    }
}

#[test]
fn the_commands_shown_exist() {
    let known = adit::cli::args::Args::command();
    // In code only: blocks of commands, and spans of it in the text.
    let blocks = README.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let spans = README.split('`').skip(1).step_by(2).filter(|span| !span.contains('\n'));
    let mut shown = 0;
    for code in blocks.flat_map(str::lines).chain(spans) {
        let code = code.split('#').next().unwrap_or_default();
        let mut words = code.split_whitespace().skip_while(|&word| word != "adit").skip(1);
        let Some(name) = words.next().filter(|name| name.chars().all(|letter| letter.is_ascii_lowercase())) else {
            continue;
        };
        // `systemctl start adit` ends there, `ip netns exec far adit reflect` goes on.
        let mut command = known.find_subcommand(name).unwrap_or_else(|| panic!("{code}: there is no adit {name}"));
        let mut words = words.peekable();
        while let Some(inner) = words.peek().and_then(|word| command.find_subcommand(word)) {
            command = inner;
            words.next();
        }
        for option in words.filter(|word| word.starts_with("--")) {
            let option = option.trim_start_matches('-').trim_end_matches([';', ',']);
            let has = |argument: &clap::Arg| argument.get_long() == Some(option);
            assert!(command.get_arguments().any(has), "{code}: adit {name} has no --{option}");
        }
        shown += 1;
    }
    assert!(shown >= 10, "only {shown} commands are shown");
}

#[test]
fn the_two_commands_are_shown() {
    assert!(README.contains("\ncargo run --release -- demo "));
    assert!(README.contains("\ncargo test "));
}
