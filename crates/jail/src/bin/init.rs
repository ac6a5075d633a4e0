//! The container init: runs as process 1 of a container.

fn main() -> std::process::ExitCode {
    ringfence_jail::init_main()
}
