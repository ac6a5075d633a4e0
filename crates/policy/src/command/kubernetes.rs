//! Clients of Kubernetes: secrets, and the configured values of programs.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use crate::shell::Word;

/// Kinds of objects that hold no values of programs, with their short names.
const HARMLESS: &[&str] = &[
    "no",
    "node",
    "nodes",
    "ns",
    "namespace",
    "namespaces",
    "svc",
    "service",
    "services",
    "ing",
    "ingress",
    "ingresses",
    "ev",
    "event",
    "events",
    "ep",
    "endpoints",
    "endpointslice",
    "endpointslices",
    "pv",
    "persistentvolume",
    "persistentvolumes",
    "pvc",
    "persistentvolumeclaim",
    "persistentvolumeclaims",
    "sc",
    "storageclass",
    "storageclasses",
    "netpol",
    "networkpolicy",
    "networkpolicies",
    "hpa",
    "horizontalpodautoscaler",
    "horizontalpodautoscalers",
    "pdb",
    "poddisruptionbudget",
    "poddisruptionbudgets",
    "quota",
    "resourcequota",
    "resourcequotas",
    "limits",
    "limitrange",
    "limitranges",
    "sa",
    "serviceaccount",
    "serviceaccounts",
    "role",
    "roles",
    "rolebinding",
    "rolebindings",
    "clusterrole",
    "clusterroles",
    "clusterrolebinding",
    "clusterrolebindings",
    "pc",
    "priorityclass",
    "priorityclasses",
    "lease",
    "leases",
];

/// Fields that hold no values of programs, where a path ends with one.
const FIELDS: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "kind",
    "apiVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "resourceVersion",
    "generation",
    "labels",
    "app",
    "image",
    "imageID",
    "imagePullPolicy",
    "phase",
    "reason",
    "status",
    "type",
    "ready",
    "started",
    "restartCount",
    "exitCode",
    "startTime",
    "startedAt",
    "finishedAt",
    "lastTransitionTime",
    "lastTimestamp",
    "firstTimestamp",
    "count",
    "nodeName",
    "serviceAccountName",
    "podIP",
    "hostIP",
    "clusterIP",
    "ip",
    "hostname",
    "host",
    "port",
    "ports",
    "containerPort",
    "targetPort",
    "nodePort",
    "protocol",
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "schedule",
    "cpu",
    "memory",
    "storage",
    "capacity",
    "allocatable",
    "requests",
    "limits",
    "resources",
    "qosClass",
    "restartPolicy",
    "kubeletVersion",
];

/// Judges `kubectl get` and `kubectl describe`: no secrets, and no values of programs.
pub(super) fn check(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    secrets(args, title, analysis);
    let verb = title.rsplit(' ').next().unwrap_or_default();
    let whole = match verb {
        "describe" => true,
        "get" => {
            let shown =
                |(name, _): &&(&str, Option<String>)| matches!(*name, "-o" | "--output" | "--template");
            let mut formats = scanned.values.iter().filter(shown);
            formats.any(|(name, value)| !value.as_deref().is_some_and(|value| is_narrow(name, value)))
        }
        _ => false,
    };
    if whole && !kinds(args, scanned).is_some_and(|kinds| kinds.iter().all(|kind| is_harmless(kind))) {
        analysis.add(
            Effect::Secret,
            format!("{title}: shows what programs are given; ask for a field with -o jsonpath"),
        );
    }
}

fn secrets(args: &[Word], title: &str, analysis: &mut Analysis) {
    let secret = |word: &Word| {
        let text = word.text.to_ascii_lowercase();
        text.split([',', '/']).any(|part| {
            part.split('.')
                .next()
                .is_some_and(|kind| matches!(kind, "secret" | "secrets" | "all-secrets"))
        })
    };
    // The working directory may contain a file named `secrets`.
    let becomes = |word: &Word| word.is_glob() && !word.text.contains(['=', '{']);
    if args.iter().any(|word| secret(word) || becomes(word)) {
        analysis.add(Effect::Secret, format!("{title}: shows secrets"));
    }
    let from_file = |word: &Word| {
        ["-file=", "-file "]
            .iter()
            .any(|part| format!("{} ", word.text).contains(part))
    };
    if args.iter().any(|word| word.text == "dump") || args.iter().any(from_file) {
        analysis.add(
            Effect::Unknown,
            format!("{title}: shows everything, or reads a file"),
        );
    }
    if args
        .iter()
        .any(|word| word.text == "--raw" || word.text.starts_with("--raw="))
    {
        analysis.add(Effect::Secret, format!("{title} --raw: shows anything"));
    }
}

/// Returns the kinds that the operands name; `None` if there are none, or not all are known beforehand.
///
/// Either the first operand is a list of kinds and names follow, or each is `kind/name`.
fn kinds(args: &[Word], scanned: &Scanned) -> Option<Vec<String>> {
    let operands: Vec<String> = scanned
        .operands
        .iter()
        .map(|index| args[*index].literal())
        .collect::<Option<_>>()?;
    let first = operands.first()?;
    let of = |text: &String| text.split('/').next().unwrap_or_default().to_ascii_lowercase();
    Some(match first.contains('/') {
        true => operands.iter().map(of).collect(),
        false => first.split(',').map(str::to_ascii_lowercase).collect(),
    })
}

/// Returns `true` for a harmless kind, with or without its group and version:
/// `networkpolicies.networking.k8s.io`.
fn is_harmless(kind: &str) -> bool {
    match kind.split_once('.') {
        Some((kind, group)) => HARMLESS.contains(&kind) && group.ends_with("k8s.io"),
        None => HARMLESS.contains(&kind),
    }
}

/// Returns `true` if an output format shows names, or fields that hold no values of programs.
fn is_narrow(option: &str, value: &str) -> bool {
    let (format, fields) = match (option, value.split_once('=')) {
        ("--template", _) => ("go-template", value),
        (_, Some((format, fields))) => (format, fields),
        (_, None) => (value, ""),
    };
    match format {
        "" | "name" | "wide" => fields.is_empty(),
        // The template is in an option of its own.
        "go-template" | "template" | "jsonpath" if fields.is_empty() => true,
        "custom-columns" => columns(fields),
        "jsonpath" | "jsonpath-as-json" | "go-template" | "template" => template(fields),
        _ => false,
    }
}

fn columns(fields: &str) -> bool {
    fields.split(',').all(|column| {
        let path = column.split_once(':').map_or("", |(_, path)| path);
        is_path(path.trim_matches(['{', '}']))
    })
}

fn template(fields: &str) -> bool {
    let Some((_, rest)) = fields.split_once('{') else {
        return is_path(fields);
    };
    rest.split('{').all(|part| {
        let Some((inside, _)) = part.rsplit_once('}') else {
            return part.is_empty();
        };
        let inside = inside.trim_end_matches('}').trim().trim_matches('-').trim();
        let text = inside.len() > 1 && inside.starts_with('"') && inside.ends_with('"');
        let printed = inside.strip_prefix("range ");
        let text = text && !inside[1..inside.len() - 1].contains('"');
        inside.is_empty() || inside == "end" || text || printed.map_or_else(|| is_path(inside), is_steps)
    })
}

/// Returns `true` for a path of plain names that ends with a harmless field.
fn is_path(path: &str) -> bool {
    let last = plain_steps(path).and_then(|steps| steps.last().cloned());
    last.is_some_and(|last| FIELDS.contains(&last.as_str()))
}

/// Returns `true` for a path of plain names, over which a template iterates. The printed values are in other
/// braces.
fn is_steps(path: &str) -> bool {
    plain_steps(path.trim()).is_some()
}

/// Returns the names of a path, without indices and filters; `None` for anything else.
fn plain_steps(path: &str) -> Option<Vec<String>> {
    let mut plain = String::new();
    let mut rest = path.trim_start_matches('$');
    while let Some((before, behind)) = rest.split_once('[') {
        let (index, after) = behind.split_once(']')?;
        let number = index
            .chars()
            .all(|sign| sign.is_ascii_digit() || "*:-".contains(sign));
        let filter = index.starts_with("?(@.") && index.ends_with(')');
        if !number && !filter {
            return None;
        }
        plain.push_str(before);
        rest = after;
    }
    plain.push_str(rest);
    let name = |step: &str| !step.is_empty() && step.chars().all(|sign| sign.is_ascii_alphanumeric());
    let steps: Vec<String> = plain
        .strip_prefix('.')
        .unwrap_or(&plain)
        .split('.')
        .map(str::to_owned)
        .collect();
    steps.iter().all(|step| name(step)).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_from_whole_objects() {
        for format in [
            "name",
            "wide",
            "jsonpath={.metadata.name}",
            "jsonpath={.items[0].status.phase}",
            "jsonpath={range .items[*]}{.metadata.name}{\"\\t\"}{.status.podIP}{end}",
            "custom-columns=A:.metadata.name,B:.spec.containers[*].image",
            "go-template={{range .items}}{{.metadata.name}}{{end}}",
        ] {
            assert!(is_narrow("-o", format), "{format}");
        }
        for format in [
            "yaml",
            "json",
            "jsonpath={.}",
            "jsonpath={}{@}",
            "jsonpath={..name}",
            "jsonpath={.items[*]}",
            "jsonpath={.spec['name','env']}",
            "jsonpath={range .items[*]}{}{@}{end}",
            "jsonpath={.metadata.name}{.data}",
            "jsonpath={.data.name}x{.data}",
            "go-template={{.}}",
            "go-template={{.metadata.name}}{{$x}}",
            "go-template={{printf \"%v\" .}}",
            "go-template={{\"a\" | printf . \"b\"}}",
            "custom-columns=A:.metadata.name,B:.data",
            "custom-columns-file=x",
            "unknown",
        ] {
            assert!(!is_narrow("-o", format), "{format}");
        }
    }
}
