//! The built-in container templates.

use std::collections::BTreeMap;

use ringfence_policy::{Bytes, Pids, Timeout};

use super::schema::{Template, Templates};
use super::values::{self, Milliseconds, NetworkMode, OciRuntime, SeccompProfile};

impl Default for Template {
    /// Returns the limits of `code-executor`, from which new templates start. It has no network.
    fn default() -> Self {
        Self {
            plugin_name: None,
            image: None,
            network_mode: NetworkMode::None,
            allowed_hosts: Vec::new(),
            memory_limit: Bytes::mib(1024),
            cpu_limit: values::cpus("1"),
            max_pids: pids("100"),
            max_duration: Milliseconds(Timeout::seconds(300)),
            seccomp_profile: SeccompProfile::Standard,
            oci_runtime: OciRuntime::Default,
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        let code_executor = Template::default();
        let integration_test = Template {
            network_mode: NetworkMode::Restricted,
            seccomp_profile: SeccompProfile::StandardNet,
            ..code_executor.clone()
        };
        let ai_provider = Template {
            network_mode: NetworkMode::Restricted,
            memory_limit: Bytes::mib(256),
            cpu_limit: values::cpus("0.5"),
            max_pids: pids("10"),
            max_duration: Milliseconds(Timeout::seconds(120)),
            seccomp_profile: SeccompProfile::Strict,
            ..code_executor.clone()
        };
        let policy_sandbox = Template {
            memory_limit: Bytes::mib(128),
            cpu_limit: values::cpus("0.25"),
            max_pids: pids("5"),
            max_duration: values::milliseconds("100ms"),
            seccomp_profile: SeccompProfile::Strict,
            ..code_executor.clone()
        };
        Self(BTreeMap::from([
            ("ai-provider".to_owned(), ai_provider),
            ("code-executor".to_owned(), code_executor),
            ("policy-sandbox".to_owned(), policy_sandbox),
            ("integration-test".to_owned(), integration_test),
        ]))
    }
}

#[expect(
    clippy::expect_used,
    reason = "the texts are constants of this file, and a test reads them all"
)]
fn pids(text: &str) -> Pids {
    text.parse().expect("a number of processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_templates_have_the_sources_numbers() {
        let Templates(all) = Templates::default();
        let numbers = |name: &str| {
            let t = &all[name];
            (
                t.memory_limit.0 >> 20,
                t.cpu_limit.get(),
                t.max_pids.get(),
                t.max_duration.0.as_duration().as_millis(),
            )
        };
        assert_eq!(numbers("ai-provider"), (256, 0.5, 10, 120_000));
        assert_eq!(numbers("code-executor"), (1024, 1.0, 100, 300_000));
        assert_eq!(numbers("policy-sandbox"), (128, 0.25, 5, 100));
        assert_eq!(numbers("integration-test"), (1024, 1.0, 100, 300_000));
        assert_eq!(
            all["integration-test"].seccomp_profile,
            SeccompProfile::StandardNet
        );
        assert_eq!(all["policy-sandbox"].network_mode, NetworkMode::None);
    }
}
