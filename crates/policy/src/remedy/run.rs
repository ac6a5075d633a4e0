//! Remedies for runs in the fence of this machine.

use serde::{Deserialize, Serialize};

use super::Remedy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    RaiseConcurrency,
    AllowProcesses,
    RaiseDisk,
    LowerProcessors,
    /// A Python that can be used.
    NamePython,
    /// A Python that only the `PATH` leads to, where programs may write.
    TrustPython,
    /// A Python in a directory without private files.
    SeparatePython,
    /// The Python of a server that keeps another one ready.
    SharePython,
    InstallPython,
    /// A file that programs could have changed.
    AcceptFile,
    RepairFence,
    ExamineFence,
    ExamineControlGroups,
    ExamineLimits,
    AcceptFlatFence,
    /// For an option that needs namespaces.
    AllowNamespaces,
    /// For a directory that only mounts can protect.
    ProtectByNamespaces,
    UseLocal,
    /// For code that is too long to be checked.
    SplitCode,
    UnblockImports,
    UnblockImportsInPyodide,
    Retry,
    Report,
    ReportInterpreter,
    /// The key of the service that runs programs.
    SetServiceKey,
    ReplaceServiceKey,
    /// An address that no service answers at.
    CheckService,
    /// For an account that has as many sandboxes as it may have.
    EndSandboxes,
    /// A template with the limits that a program needs.
    NameTemplate,
}

impl Run {
    pub(super) fn person(self) -> &'static str {
        match self {
            Self::RaiseConcurrency => "try again later, or raise `engine.max_concurrent`",
            Self::AllowProcesses => {
                "let other programs of this user end, or allow more processes (`--pids`, `sandbox.pids`)"
            }
            Self::RaiseDisk => {
                "delete what is not needed, or raise `sandbox.disk` (`codeExecution.maxDisk` for `sandbox_exec`)"
            }
            Self::LowerProcessors => "ask for fewer (`--cpus`, `sandbox.cpus`)",
            Self::NamePython => {
                "name a python3, or the directory of a virtual environment, with `--python` or `sandbox.python`; \
                 `ringfence doctor` shows which interpreters were found"
            }
            Self::TrustPython => {
                "if you trust it, name it: `--python PATH` or `sandbox.python`; else take that directory off the PATH"
            }
            Self::SeparatePython => {
                "use an interpreter or a virtual environment in a directory of its own (`--python`, `sandbox.python`)"
            }
            Self::SharePython => "restart the server with this PATH, or set `sandbox.python`",
            Self::InstallPython => {
                "sudo apt install python3  (or name one: `ringfence run --python PATH`, or `sandbox.python` in the configuration)"
            }
            Self::AcceptFile => "look at that file, and if you trust it run `ringfence accept` with its path",
            Self::RepairFence => {
                "run `ringfence doctor` for the fix, or set `sandbox.isolation` (`--isolation` for one run) to best-effort"
            }
            Self::ExamineFence => "run `ringfence doctor` to see which layer does not work here, and the fix",
            Self::ExamineControlGroups => "run `ringfence doctor` to see which control groups can be used",
            Self::ExamineLimits => "`ringfence doctor` says how to get them",
            Self::AcceptFlatFence => {
                "run outside of other sandboxes and chroots, or accept that runs are held by Landlock, the system-call filter \
                 and resource limits (`--isolation best-effort`)"
            }
            Self::AllowNamespaces => {
                "leave the option out, or allow user namespaces (see `ringfence doctor`)"
            }
            Self::ProtectByNamespaces => {
                "move it out of that directory, or run where namespaces can be made (`ringfence doctor`)"
            }
            Self::UseLocal => "use the runtime `local` (`--runtime local`, or SANDBOX_TYPE=local)",
            Self::SplitCode => {
                "split the code up, or switch the check off with `sandbox.block_dangerous_imports`"
            }
            Self::UnblockImports => "set `sandbox.block_dangerous_imports` to false",
            Self::UnblockImportsInPyodide => "take them out of `skills.sandbox.blocked_imports`",
            Self::Retry => "try again; if it happens again, report it with the output of `ringfence doctor`",
            Self::Report => "report this with the output of `ringfence doctor`",
            Self::ReportInterpreter => {
                "run the interpreter outside of Ringfence; if it works there, report this with the output of `ringfence doctor`"
            }
            Self::SetServiceKey => {
                "set E2B_API_KEY, or name a file with the key in `sandbox.e2b.api_key_file`; or use the runtime `local` \
                 (`--runtime local`, or SANDBOX_TYPE=local)"
            }
            Self::ReplaceServiceKey => {
                "check E2B_API_KEY (`sandbox.e2b.api_key_file`), and that it is a key of the service at this address"
            }
            Self::CheckService => {
                "check E2B_API_URL, E2B_SANDBOX_URL and E2B_DOMAIN (`sandbox.e2b`): `https`, or plain `http` on this machine \
                 alone; `ringfence doctor` shows the address"
            }
            Self::EndSandboxes => "let other sandboxes end, or raise the limits of the account",
            Self::NameTemplate => {
                "name a template of the service in `sandbox.e2b.template` that has a shell, tar and the language's interpreter"
            }
        }
    }

    pub(super) fn model(self) -> &'static str {
        match self {
            Self::RaiseConcurrency => "try again later",
            Self::UseLocal | Self::SetServiceKey | Self::ReplaceServiceKey | Self::CheckService => {
                "use the runtime `local`"
            }
            Self::SplitCode => "split the code up",
            Self::AllowProcesses
            | Self::RaiseDisk
            | Self::LowerProcessors
            | Self::NamePython
            | Self::TrustPython
            | Self::SeparatePython
            | Self::SharePython
            | Self::InstallPython
            | Self::AcceptFile
            | Self::RepairFence
            | Self::ExamineFence
            | Self::ExamineControlGroups
            | Self::ExamineLimits
            | Self::AcceptFlatFence
            | Self::AllowNamespaces
            | Self::ProtectByNamespaces
            | Self::UnblockImports
            | Self::UnblockImportsInPyodide
            | Self::Retry
            | Self::Report
            | Self::ReportInterpreter
            | Self::EndSandboxes
            | Self::NameTemplate => self.person(),
        }
    }
}

impl From<Run> for Remedy {
    fn from(remedy: Run) -> Self {
        Self::Run(remedy)
    }
}
