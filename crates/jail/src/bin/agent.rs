//! The agent: what runs as the first process of a container.

fn main() -> std::process::ExitCode {
    ringfence_jail::agent_main()
}
