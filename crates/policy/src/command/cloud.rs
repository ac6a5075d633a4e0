//! Clients of clouds and clusters, with too many subcommands for a table.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options::Scanned;
use super::table::within_word;
use crate::shell::Word;

/// Groups of `gcloud`; the operation follows them. No group shares its name with an operation, except those
/// that `gcloud` below handles.
const GCLOUD: &str = include_str!("table/gcloud-groups.txt");

/// Upper bound on the nesting of groups.
const MAX_GROUPS: usize = 12;

/// Read-only operations.
const GCLOUD_ASKS: &str = "list describe list-* describe-* get-iam-policy get-ancestors get-ancestors-iam-policy get-server-config \
    get-effective-firewalls get-health get-nat-mapping-info get-nat-ip-info get-status get-xpn-host get-project read tail \
    get-operation log get-value get-guest-attributes get-serial-port-output get-public-key get-partition get-parent-* \
    search-* lookup validate-* check-* query";

/// Groups whose members have environments or start-up scripts.
const GIVEN: &[&str] = &[
    "functions",
    "run",
    "app",
    "instances",
    "instance-templates",
    "project-info",
    "clusters",
    "jobs",
    "triggers",
    "builds",
    "composer",
    "dataflow",
    "workstations",
    "notebooks",
    "workflows",
    "connections",
];

/// Judges `gcloud`: groups, then an operation.
pub(super) fn gcloud(args: &[Word], title: &str, analysis: &mut Analysis) {
    let first = title.rsplit(' ').next().unwrap_or_default().to_owned();
    let words: Vec<String> = std::iter::once(first)
        .chain(args.iter().map_while(plain))
        .collect();
    // Some names are both a group and an operation: only at the beginning is it the group.
    let begins = |at: usize| at == 0 || matches!(words[at - 1].as_str(), "alpha" | "beta");
    let is_group = |at: usize, word: &String| {
        let known = GCLOUD.split_whitespace().any(|group| group == word);
        known && (!["run", "deploy", "diagnose", "transfer", "source"].contains(&word.as_str()) || begins(at))
    };
    let groups = words
        .iter()
        .enumerate()
        .take(MAX_GROUPS)
        .take_while(|(at, word)| is_group(*at, word))
        .count();
    let Some(verb) = words.get(groups).filter(|_| groups > 0) else {
        return analysis.add(
            Effect::Unknown,
            format!("{title}: nothing is known of this subcommand"),
        );
    };
    let asks = GCLOUD_ASKS
        .split_whitespace()
        .any(|pattern| within_word(pattern, verb));
    if !asks {
        return analysis.add(Effect::Write, format!("{title} … {verb}: may change something"));
    }
    if matches!(words[0].as_str(), "auth" | "emulators") && verb != "list" {
        analysis.add(Effect::Secret, format!("{title}: may show secrets"));
    }
    let given = words[..groups]
        .iter()
        .any(|group| GIVEN.contains(&group.as_str()));
    let whole = args.iter().any(|word| word.text.starts_with("--format"));
    if given && (whole || verb.starts_with("describe") || verb.starts_with("get-")) {
        analysis.add(
            Effect::Secret,
            format!("{title} … {verb}: shows what programs and machines are given"),
        );
    }
    account_of_gcloud(&words, groups, args, title, analysis);
    options(
        args,
        title,
        &[
            "--impersonate-service-account",
            "--flags-file",
            "--access-token-file",
            "--configuration",
            "--log-http",
            "--output-file",
            "--attestation-file",
            "--bigquery-*",
            "--write-disposition",
        ],
        analysis,
    );
}

/// Options of `gcloud` that name the account which sees the request.
const ACCOUNTS: &[&str] = &["--project", "--billing-project"];

/// Judges the account and project of `gcloud`. A stranger can own the project, and read the requests in its
/// log: only a plain list discloses nothing.
fn account_of_gcloud(words: &[String], groups: usize, args: &[Word], title: &str, analysis: &mut Analysis) {
    let name = |word: &Word| word.text.split('=').next().unwrap_or_default().to_owned();
    let named = |word: &Word| {
        ACCOUNTS
            .iter()
            .any(|option| name(word).len() > 3 && option.starts_with(&name(word)))
    };
    analysis.account |= args.iter().any(named);
    let quiet = ["--format", "--limit", "--quiet", "-q"];
    let mut value = false;
    let mut rest = args.iter().skip(groups);
    let bare = words[groups] == "list"
        && rest.all(|word| {
            let follows = std::mem::replace(&mut value, named(word) && !word.text.contains('='));
            follows || named(word) || quiet.contains(&&*name(word))
        });
    if analysis.account && !bare {
        analysis.add(
            Effect::Network,
            format!("{title}: asks an account that is named in the command"),
        );
    }
    elsewhere(args, title, &[], analysis);
}

/// Judges named buckets and accounts. `aws s3 ls s3://x`, `gsutil ls gs://x`: the owner of a bucket sees the
/// requests. `gcloud --project x`: the account counts for the subcommand.
pub(super) fn named(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    analysis.account |= title == "gcloud" && scanned.has_any(ACCOUNTS);
    // A data set of one's own has no project before it.
    let own = |text: &str| title.starts_with("bq ") && !text.contains(':') && text.matches('.').count() < 2;
    for index in &scanned.operands {
        if !args[*index].literal().is_some_and(|text| own(&text)) {
            analysis.add(
                Effect::Network,
                format!("{title}: `{}` may be anybody's", args[*index].text),
            );
        }
    }
}

/// Adds a finding for options and values that name resources which a stranger may own: buckets, accounts,
/// resources.
fn elsewhere(args: &[Word], title: &str, names: &[&str], analysis: &mut Analysis) {
    // `arn:partition:service:region:account:resource`
    let account = |text: &str| {
        let behind = text.split("arn:").skip(1);
        behind
            .filter_map(|arn| arn.split(':').nth(3))
            .any(|account| account.starts_with(|sign: char| sign.is_ascii_digit()))
    };
    for word in args {
        let bucket = ["s3://", "gs://"].iter().any(|scheme| word.text.contains(scheme));
        if has_option(word, names) || bucket || account(&word.text) {
            analysis.add(
                Effect::Network,
                format!("{title}: `{}` names what may be anybody's", word.text),
            );
        }
    }
}

/// Returns `true` if the word is one of the options, or an abbreviation of one.
fn has_option(word: &Word, names: &[&str]) -> bool {
    let name = word.text.split('=').next().unwrap_or_default();
    let abbreviates = |option: &&str| {
        within_word(option, name)
            || name.len() > 3 && name.starts_with("--") && option.trim_end_matches('*').starts_with(name)
    };
    name.starts_with('-') && names.iter().any(abbreviates)
}

/// Options of `aws` that name a bucket or an account.
const AWS_NAMED: &[&str] = &[
    "--bucket*",
    "--source-bucket*",
    "--registry-id*",
    "--catalog-id*",
    "--queue-url",
];

/// Groups of `az` that connect to a service at its own name, which a stranger can own.
const AZ_NAMED: &[&str] = &[
    "az storage ",
    "az keyvault ",
    "az acr repository ",
    "az acr manifest ",
    "az batch ",
    "az appconfig ",
];

/// Groups among these that ask for one's own services.
const AZ_OWN: &[&str] = &[
    "az storage account ",
    "az keyvault list",
    "az keyvault list-deleted",
    "az keyvault show",
    "az batch account ",
    "az appconfig list",
    "az appconfig show",
];

/// Options of `az` that name such a service.
const AZ_OPTIONS: &[&str] = &[
    "--account-name",
    "--account-endpoint",
    "--*-endpoint",
    "--*-url",
    "--vault-name",
];

/// Operations of `aws` that write to a named file, after options whose values cannot be distinguished from
/// it.
const TO_FILE: &[&str] = &[
    "get-object",
    "get-object-torrent",
    "get-hosted-configuration-version",
    "get-introspection-schema",
    "get-connection-function",
    "cloudfront get-function",
    "codeguruprofiler get-profile",
    "get-lineage-event",
    "get-position-estimate",
    "get-resource-position",
    "get-work-unit-results",
    "get-code-binding-source",
    "get-sol-*-content",
    "get-sol-*-descriptor",
    "get-job-output",
    "get-thing-shadow",
    "apigateway get-export",
    "get-sdk",
    "get-package-version-asset",
    "get-media",
    "get-media-for-fragment-list",
    "get-clip",
    "get-images",
    "get-snapshot-block",
    "appconfig get-configuration",
    "get-latest-configuration",
    "get-raw-message-content",
    "get-read-set",
    "get-reference",
    "get-tile",
    "get-map-glyphs",
    "get-map-sprites",
    "get-map-style-descriptor",
    "get-map-tile",
    "get-static-map",
    "get-sprites",
    "get-glyphs",
    "get-style-descriptor",
    "get-image-frame",
    "get-image-set-metadata",
    "describe-input-device-thumbnail",
];

/// Operations of `aws` that show or create keys, or show the environment of programs and machines.
const AWS_SECRET: &[&str] = &[
    "*secret-value*",
    "*password",
    "*password-data",
    "*random-password",
    "*credential*",
    "get-*token*",
    "get-login",
    "*parameters-for-import",
    "*data-key*",
    "*presigned*",
    "*decrypt*",
    "*private*",
    "get-*-access",
    "get-*-access-details",
    "*api-key*",
    "*client-secrets",
    "describe-user-pool-client",
    "*stream-key",
    "get-ingest-configuration",
    "*-job-details",
    "*session-endpoint",
    "get-oidc-info",
    // Environments of programs, and start-up scripts that contain keys.
    "get-function",
    "get-function-configuration",
    "list-functions",
    "list-versions-by-function",
    "describe-task*",
    "describe-job*",
    "describe-instance-attribute",
    "*launch-template-*",
    "describe-launch-configurations",
    "describe-spot-fleet-requests",
    "describe-configuration-settings",
    "describe-service",
    "batch-get-projects",
    "batch-get-builds",
    "get-connection*",
    "describe-stacks",
    "get-template",
    "describe-endpoints",
    "get-app",
    "list-apps",
    "describe-apps",
    "get-branch",
    "list-branches",
    "get-parameter*",
    "describe-vpn-connections",
    "describe-training-job",
    "describe-processing-job",
    "describe-model",
    "*lifecycle-config",
    "*unlock-code",
    // Passwords of those who feed a channel.
    "describe-channel*",
    "mediapackage* list-channels",
    "get-container-service*",
    // Whole configurations of resources, environments too.
    "*resource-config",
    "*resource-config-history",
    "get-pipeline-definition",
    // Secrets of identity providers.
    "describe-identity-provider",
    "get-identity-provider*",
    "*embed-url*",
    "get-*-access-keys",
    "glue get-job*",
    "describe-step",
    "list-steps",
    "get-stage*",
];

/// Judges `aws service operation` by the name of the operation.
pub(super) fn aws(args: &[Word], title: &str, analysis: &mut Analysis) {
    options(
        args,
        title,
        &[
            "--endpoint-url",
            "--with-decryption",
            "--no-verify-ssl",
            "--ca-bundle",
            "--cli-input-*",
            "--debug",
            "--cli-auto-prompt",
            "--include-value*",
        ],
        analysis,
    );
    elsewhere(args, title, AWS_NAMED, analysis);
    // An operand is the file that the response is written to.
    if args.first().and_then(plain).is_some() {
        analysis.add(Effect::Write, format!("{title}: writes its answer to a file"));
    }
    let operation = title.rsplit(' ').next().unwrap_or_default();
    let service = title.split(' ').nth(1).unwrap_or_default();
    let is = |pattern: &&str| match pattern.split_once(' ') {
        Some((of, pattern)) => within_word(of, service) && within_word(pattern, operation),
        None => within_word(pattern, operation),
    };
    if TO_FILE.iter().any(is) {
        analysis.add(Effect::Write, format!("{title}: writes its answer to a file"));
    }
    if AWS_SECRET.iter().any(is) && operation != "list-service-specific-credentials" {
        analysis.add(Effect::Secret, format!("{title}: shows or makes secrets"));
    }
}

/// Judges `gh api`: a read, unless it has fields or another method.
pub(super) fn gh_api(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let elsewhere = args.iter().any(|word| word.text.contains("://"));
    if elsewhere || scanned.values.iter().any(|(name, _)| *name == "--hostname") {
        analysis.add(
            Effect::Network,
            format!("{title}: asks a host that is named in the command"),
        );
    }
    for (name, value) in &scanned.values {
        let asks = value
            .as_deref()
            .is_some_and(|method| method.eq_ignore_ascii_case("get") || method.eq_ignore_ascii_case("head"));
        if matches!(*name, "-X" | "--method" | "--request") && !asks {
            analysis.add(Effect::Write, format!("{title}: another method than GET"));
        }
    }
}

/// Judges `gh`: `-R host/owner/name` and URLs contact a host that the command names.
pub(super) fn gh(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let values = scanned
        .values
        .iter()
        .filter(|(name, _)| matches!(*name, "-R" | "--repo"));
    let operands = scanned.operands.iter().map(|index| args[*index].shape());
    let elsewhere = |text: &str| {
        let first = text.split('/').next().unwrap_or_default();
        let host = text.matches('/').count() > 1 || text.contains('/') && first.contains(['.', ':']);
        host && !text.starts_with('.') || text.contains("://") || text.contains('@')
    };
    for text in values.map(|(_, value)| value.clone()).chain(operands) {
        if text.as_deref().is_none_or(elsewhere) {
            analysis.add(
                Effect::Network,
                format!("{title}: `{}` may name another host", text.unwrap_or_default()),
            );
        }
    }
    // Options of git follow `--`.
    if title.ends_with(" clone") && args.iter().any(|word| word.text == "--") {
        analysis.add(Effect::Code, format!("{title}: options of git can run programs"));
    }
}

/// Judges `ip monitor`: `file name` reads a file.
pub(super) fn ip_monitor(args: &[Word], scanned: &Scanned, analysis: &mut Analysis) {
    let objects = [
        "all", "address", "link", "mroute", "neigh", "netconf", "nexthop", "nsid", "prefix", "route", "rule",
        "label",
    ];
    let known = |index: &usize| {
        args[*index]
            .literal()
            .is_some_and(|text| objects.contains(&text.as_str()))
    };
    if !scanned.operands.iter().all(known) {
        analysis.add(Effect::Unknown, "ip monitor: reads a file");
    }
}

/// Subcommands of `az` that show keys and tokens.
pub(super) fn sensitive(args: &[Word], title: &str, analysis: &mut Analysis) {
    let secret = [
        "*-key",
        "*keys",
        "*credential*",
        "*access-token*",
        "*connection-string*",
        "*password*",
        "*appsettings*",
        "*-sas*",
        "sas",
        "*publishing-profiles",
        "*kubeconfig*",
        "rest",
        "invoke",
        "login*",
        "*-secrets",
        "list-secrets",
        "secret",
        "show-secret",
        // Environments of programs.
        "kv",
        "*variable*",
        "staticwebapp",
    ];
    let shows = |word: &str| secret.iter().any(|pattern| within_word(pattern, word));
    let own = AZ_OWN
        .iter()
        .any(|group| title == *group || group.ends_with(' ') && title.starts_with(group));
    if !own && AZ_NAMED.iter().any(|group| title.starts_with(group)) {
        analysis.add(
            Effect::Network,
            format!("{title}: asks a service that is named in the command"),
        );
    }
    if !own {
        elsewhere(args, title, AZ_OPTIONS, analysis);
    }
    let given = ["az container ", "az containerapp ", "az deployment "];
    if given.iter().any(|group| title.starts_with(group)) && !title.contains(" logs") {
        analysis.add(Effect::Secret, format!("{title}: shows what programs are given"));
    }
    if title.split(' ').skip(1).any(shows) || title.ends_with("secret show") || title.ends_with("secret get")
    {
        analysis.add(Effect::Secret, format!("{title}: may show secrets"));
    }
    options(
        args,
        title,
        &[
            "--file",
            "-f",
            "--debug",
            "--show-secrets",
            "--include-secrets",
            "--secrets",
            "--show-values",
            "--open-browser",
            "--open",
            "--launch-browser",
            "--dest*",
        ],
        analysis,
    );
    if args.first().and_then(plain).is_some() {
        analysis.add(
            Effect::Unknown,
            format!("{title}: an operand that is not in the table"),
        );
    }
}

/// Rejects options that make a read-only operation do more, or contact another host.
fn options(args: &[Word], title: &str, refused: &[&str], analysis: &mut Analysis) {
    for word in args {
        let name = word.text.split('=').next().unwrap_or_default();
        if has_option(word, refused) {
            analysis.add(
                Effect::Unknown,
                format!("{title} {name}: goes elsewhere, or shows more"),
            );
        }
        if word.shape().is_none() {
            analysis.add(
                Effect::Unknown,
                format!("{title}: `{}` is not known beforehand", word.text),
            );
        }
        // A value with such a prefix is read from a file or fetched from a URL.
        let value = word
            .text
            .split_once('=')
            .map_or(word.text.as_str(), |(_, value)| value);
        if value.starts_with('@')
            || value.contains("://") && !value.starts_with("s3://") && !value.starts_with("gs://")
        {
            analysis.add(
                Effect::Unknown,
                format!("{title}: `{}` is read from elsewhere", word.text),
            );
        }
    }
}

/// Judges `ip object operation`; an abbreviated change must not pass for a query.
pub(super) fn ip(args: &[Word], title: &str, analysis: &mut Analysis) {
    let asks = ["show", "list", "lst", "ls", "sh", "get"];
    let Some(first) = args.first() else { return };
    match first.literal().as_deref() {
        Some(verb) if asks.contains(&verb) => {}
        Some(verb) => analysis.add(
            Effect::Privilege,
            format!("{title} {verb}: may change the network"),
        ),
        None => analysis.add(
            Effect::Unknown,
            format!("{title}: `{}` is not known beforehand", first.text),
        ),
    }
}

fn plain(word: &Word) -> Option<String> {
    word.literal().filter(|text| !text.starts_with('-'))
}
