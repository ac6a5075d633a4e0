//! Errors of kernels.

use ringfence_sandbox::Error as SandboxError;

/// An error of an operation on a kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No kernel has this id.
    #[error("there is no kernel `{0}`")]
    NoKernel(String),
    /// There is no such kind of kernel.
    #[error("there is no kernel named `{0}`")]
    NoSpec(String),
    /// The limit of clients at its channels is reached.
    #[error("the limit of {0} connections to a kernel is reached")]
    TooManyConnections(usize),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl Error {
    /// Returns advice for the reader of the error.
    pub fn hint(&self) -> String {
        match self {
            Self::NoKernel(_) => {
                "create a kernel by POST …/api/kernels; its sandbox ends an hour after its last use"
                    .to_owned()
            }
            Self::NoSpec(_) => "GET …/api/kernelspecs lists the kernels".to_owned(),
            Self::TooManyConnections(_) => "close another connection".to_owned(),
            Self::Sandbox(error) => error.hint(),
        }
    }
}
