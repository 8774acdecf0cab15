//! Configurations of the trials.

/// How often and by what numbers, in short times.
pub(crate) const CONFIGURATION: &str = "[kernel]\napply = true\n\
    [defaults.health_check]\ninterval = \"100ms\"\ntimeout = \"400ms\"\ndown_window = \"900ms\"\n\
    [defaults.health_check.rules]\ndegraded_window = \"4s\"\nrecovery_samples = 10\n";

/// A tunnel, and what else is said of it.
pub(crate) fn tunnel_with(number: usize, more: &str) -> String {
    format!(
        "[[tunnel]]\nname = \"path{number}\"\nencapsulation = \"gre\"\nlocal_endpoint = \"10.100.{number}.8\"\n\
         remote_endpoint = \"10.100.{number}.9\"\ninterface_address = \"10.101.{number}.8/31\"\n{more}"
    )
}

/// A tunnel, and a route over it.
pub(crate) fn tunnel(number: usize) -> String {
    let route = format!(
        "[[route]]\nprefix = \"10.20.0.0/16\"\ntunnel = \"path{number}\"\npriority = {priority}\n\
         device = \"near{number}\"\nvia = \"10.100.{number}.9\"\n",
        priority = 100 * (number + 1)
    );
    tunnel_with(number, &route)
}

/// Two tunnels and a route over each.
pub(crate) fn usual() -> String {
    format!("{CONFIGURATION}{}{}", tunnel(0), tunnel(1))
}
