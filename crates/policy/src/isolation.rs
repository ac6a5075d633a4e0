//! Isolation: the required mode, and the layers applied.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handling of an isolation layer that this machine cannot provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationMode {
    /// Refuse the run.
    Required,
    /// Run with the available layers, and report them.
    #[serde(alias = "best_effort")]
    BestEffort,
}

/// The isolation layers applied to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Own user namespace.
    pub user_ns: bool,
    /// Own pid namespace.
    pub pid_ns: bool,
    /// Own mount namespace with a minimal read-only root.
    pub mount_ns: bool,
    /// Own network namespace, empty or with the egress proxy alone.
    pub net_ns: bool,
    /// Own IPC namespace: System V IPC and POSIX message queues.
    pub ipc_ns: bool,
    /// Own UTS namespace: host name.
    pub uts_ns: bool,
    /// Own cgroup namespace.
    pub cgroup_ns: bool,
    /// Own time namespace: clock offsets.
    pub time_ns: bool,
    /// Name of the seccomp filter; `false` without one.
    #[serde(default, with = "name_or_false")]
    #[schemars(schema_with = "name_or_false::schema")]
    pub seccomp: Option<String>,
    /// Landlock ABI enforced; 0 without Landlock.
    pub landlock_abi: u32,
    /// `v1` or `v2` where cgroups enforce the limits, else `false`.
    #[serde(default, with = "name_or_false")]
    #[schemars(schema_with = "name_or_false::schema")]
    pub cgroup: Option<String>,
    /// `no_new_privs`: setuid programs gain no privileges.
    pub no_new_privs: bool,
    /// All capabilities dropped.
    pub capabilities_dropped: bool,
}

impl Isolation {
    /// No layer: the report of an `--unfenced` run.
    pub const NONE: Self = Self {
        user_ns: false,
        pid_ns: false,
        mount_ns: false,
        net_ns: false,
        ipc_ns: false,
        uts_ns: false,
        cgroup_ns: false,
        time_ns: false,
        seccomp: None,
        landlock_abi: 0,
        cgroup: None,
        no_new_privs: false,
        capabilities_dropped: false,
    };
}

/// The name of a layer that was applied, else `false`, as the layers without a name have it.
mod name_or_false {
    use schemars::{Schema, SchemaGenerator, json_schema};
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Layer {
        Name(String),
        IsApplied(bool),
        /// Of results that earlier versions stored.
        Nothing(()),
    }

    pub(super) fn serialize<S: Serializer>(name: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
        match name {
            Some(name) => serializer.serialize_str(name),
            None => serializer.serialize_bool(false),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        match Layer::deserialize(deserializer)? {
            Layer::Name(name) => Ok(Some(name)),
            Layer::IsApplied(false) | Layer::Nothing(()) => Ok(None),
            Layer::IsApplied(true) => Err(serde::de::Error::custom("expected the name of a layer, or false")),
        }
    }

    pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, {"type": "boolean", "const": false}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_layer_without_its_name_is_false() {
        let named = Isolation {
            seccomp: Some("fence".to_owned()),
            ..Isolation::NONE
        };
        let mut value = serde_json::to_value(&named).unwrap();
        assert_eq!(
            (&value["seccomp"], &value["cgroup"]),
            (&json!("fence"), &json!(false))
        );
        let read = |value: &serde_json::Value| serde_json::from_value::<Isolation>(value.clone());
        assert_eq!(read(&value).unwrap(), named);
        // A stored result of an earlier version.
        value["cgroup"] = json!(null);
        assert_eq!(read(&value).unwrap(), named);
        value["cgroup"] = json!(true);
        assert!(read(&value).is_err());
    }
}
