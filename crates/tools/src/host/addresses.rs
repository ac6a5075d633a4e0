//! Addresses of the hosts in a line: a public name can resolve to a private address.

use std::net::IpAddr;

use ringfence_network::egress::Resolver;
use ringfence_policy::cascade::{Decision, Forced};
use ringfence_policy::{Host, is_public};

/// Returns the options that pin each host to its present address, or else the first host that is not public.
///
/// Otherwise a second lookup of the name could return another address (DNS rebinding).
pub(crate) async fn pinned(decision: &Decision, resolver: &Resolver) -> Result<Vec<Forced>, String> {
    let mut pins = Vec::new();
    for host in decision.parts.iter().flat_map(|part| &part.hosts) {
        let Ok(Host::Name(name)) = host.name.parse() else {
            return Err(host.name.clone());
        };
        let addresses = resolver.resolve(&name).await;
        let [first, ..] = addresses.as_slice() else {
            return Err(host.name.clone());
        };
        if !addresses.iter().all(|address| is_public(*address)) {
            return Err(host.name.clone());
        }
        pins.extend(host.at.map(|at| Forced {
            at,
            words: pin(&host.name, *first),
        }));
    }
    Ok(pins)
}

/// Returns the options for curl.
fn pin(name: &str, address: IpAddr) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("'[{address}]'"),
    };
    format!("--resolve {name}:443:{address} --resolve {name}:80:{address}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::cascade::{Authority, Rules, Verdict, decide};

    fn decided(line: &str) -> Decision {
        let rules = Rules {
            allow: vec!["@read-only".parse().unwrap()],
            ..Rules::default()
        };
        let decision = decide(line, &rules);
        assert_eq!(decision.verdict, Verdict::Allow, "{line}");
        decision
    }

    async fn pins(line: &str, addresses: &[&str]) -> Result<String, String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let resolver = Resolver::fixed(move |_| addresses.clone());
        let mut decision = decided(line);
        let pins = pinned(&decision, &resolver).await?;
        decision.confine(line, &pins);
        Ok(decision.executed(line, Authority::Policy).0.to_owned())
    }

    #[tokio::test]
    async fn a_public_host_is_asked_where_it_was_found_and_a_private_one_not_at_all() {
        let line = "curl -I https://example.com";
        let public = "curl --resolve example.com:443:93.184.216.34 --resolve example.com:80:93.184.216.34 -I https://example.com";
        assert_eq!(pins(line, &["93.184.216.34"]).await.unwrap(), public);
        let v6 = pins(line, &["2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
            .await
            .unwrap();
        assert!(v6.contains(":443:'[2606:"), "{v6}");
        for addresses in [
            &["127.0.0.1"][..],
            &["10.0.0.1"],
            &["169.254.169.254"],
            &["::1"],
            &["::ffff:10.0.0.1"],
            &["93.184.216.34", "127.0.0.1"],
            &[],
        ] {
            assert_eq!(
                pins(line, addresses).await,
                Err("example.com".to_owned()),
                "{addresses:?}"
            );
        }
        let spider = "wget --spider https://example.com";
        let confined = "wget --no-hsts --max-redirect=0 --spider https://example.com";
        assert_eq!(pins(spider, &["93.184.216.34"]).await.unwrap(), confined);
        assert!(pins(spider, &["127.0.0.1"]).await.is_err());
        assert_eq!(pins("ls", &[]).await.unwrap(), "ls");
    }
}
