//! Several targets of one tunnel, in words.

use serde_json::Value;

use super::text::{ago, millis, printable};

/// Lines for people; none where there is one target.
pub(super) fn lines(tunnel: &Value) -> Vec<String> {
    let Some(quorum) = tunnel["quorum"].as_u64() else { return Vec::new() };
    let targets: Vec<&Value> = tunnel["targets"].as_array().into_iter().flatten().collect();
    let mut lines = vec![format!("any {quorum} of {} must answer", targets.len())];
    lines.extend(targets.into_iter().map(one));
    lines
}

fn one(target: &Value) -> String {
    let number = |name: &str| target[name].as_u64().unwrap_or(0);
    let address = printable(target["target"].as_str().unwrap_or("-"));
    let last = match (target["last_answer"].as_str(), number("lost_in_a_row")) {
        (None, 0) => String::new(),
        (None, _) => ", silent".to_owned(),
        (Some(_), 0) => target["rtt_us"].as_u64().map(|rtt| format!(", rtt {}", millis(rtt))).unwrap_or_default(),
        (Some(at), lost) => format!(", silent for {lost} probes: last answer {} ago", ago(at)),
    };
    format!("{address}: {} of {} answered, {} lost{last}", number("answered"), number("sent"), number("lost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whoever_is_silent_is_told_apart() {
        let target = |address: &str, answered: u64, lost: u64, in_a_row: u64, last: Option<&str>| {
            let rtt = last.map(|_| 340);
            json!({
                "target": address, "sent": answered + lost, "answered": answered, "lost": lost, "lost_in_a_row": in_a_row,
                "rtt_us": rtt, "last_answer": last
            })
        };
        let now = humantime::format_rfc3339_millis(std::time::UNIX_EPOCH).to_string();
        let tunnel = json!({ "quorum": 2, "targets": [
            target("192.0.2.1", 41, 0, 0, Some(&now)),
            target("192.0.2.2", 0, 41, 41, None),
            target("192.0.2.3", 30, 11, 11, Some(&now)),
        ]});
        let lines = lines(&tunnel);
        assert_eq!(
            lines[..3],
            [
                "any 2 of 3 must answer",
                "192.0.2.1: 41 of 41 answered, 0 lost, rtt 0.34 ms",
                "192.0.2.2: 0 of 41 answered, 41 lost, silent",
            ]
        );
        assert!(
            lines[3].starts_with("192.0.2.3: 30 of 41 answered, 11 lost, silent for 11 probes: last answer "),
            "{}",
            lines[3]
        );
        assert_eq!(super::lines(&json!({ "quorum": null, "targets": [] })), Vec::<String>::new());
    }
}
