//! Arguments in, one command run, its exit code out.

fn main() -> std::process::ExitCode {
    adit::cli::main()
}
