//! Key files as a service has them: handed over by systemd, and by nobody else.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::esp::Files;

/// Key files, a folder that systemd might have made for the service, and one beside it; a key in each.
struct Service(Files);

impl Deref for Service {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.0
    }
}

impl Service {
    fn new() -> Self {
        let service = Self(Files::new());
        for folder in ["credentials", "elsewhere"] {
            fs::create_dir(service.path(folder)).unwrap();
            service.write(&format!("{folder}/out"), "a0".repeat(64));
        }
        service
    }

    /// What `adit check` says against a tunnel that has its outbound key there; nothing if it is good.
    fn refusal(&self, key: &str, credentials: Option<&Path>) -> Option<String> {
        let file = self.path("adit.toml");
        let text = format!(
            "[[tunnel]]\nname = \"par-1\"\nencapsulation = \"esp\"\nlocal_endpoint = \"198.51.100.1\"\n\
             remote_endpoint = \"203.0.113.30\"\ninterface_address = \"10.100.0.14/31\"\n[tunnel.esp]\n\
             keys = \"static\"\nspi_out = 0x1001\nspi_in = 0x2001\nalgorithm = \"aes256-cbc-hmac-sha256\"\n\
             key_out_file = {:?}\nkey_in_file = \"in\"\n",
            self.path(key)
        );
        fs::write(&file, text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_adit"));
        check.arg("check").arg("--config").arg(&file).env_remove("CREDENTIALS_DIRECTORY");
        let output = check.envs(credentials.map(|folder| ("CREDENTIALS_DIRECTORY", folder))).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(if said.is_empty() { 0 } else { 78 }), "{said}");
        (!said.is_empty()).then_some(said)
    }

    /// The same within the service.
    fn refusal_inside(&self, key: &str) -> Option<String> {
        self.refusal(key, Some(&self.path("credentials")))
    }
}

fn is_refused(said: Option<String>, mode: &str) {
    let said = said.unwrap();
    assert!(said.contains(&format!("others than its owner may use it (mode {mode}); run chmod 0600 on it")), "{said}");
}

#[test]
fn a_credential_may_be_readable_by_what_looks_like_its_group() {
    let service = Service::new();
    for mode in [0o400, 0o440, 0o600, 0o640] {
        service.chmod("credentials/out", mode);
        assert_eq!(service.refusal_inside("credentials/out"), None, "{mode:o}");
    }
    // The same file, named as the configuration may: by a link, or the long way round.
    symlink(service.path("credentials"), service.path("link")).unwrap();
    for name in ["link/out", "elsewhere/../credentials/out"] {
        assert_eq!(service.refusal_inside(name), None, "{name}");
    }
    assert_eq!(service.refusal("credentials/out", Some(&service.path("link"))), None);
}

#[test]
fn a_credential_that_others_may_use_is_refused() {
    let service = Service::new();
    for mode in [0o404, 0o444, 0o441, 0o442, 0o420, 0o460, 0o450, 0o660] {
        service.chmod("credentials/out", mode);
        is_refused(service.refusal_inside("credentials/out"), &format!("{mode:04o}"));
    }
}

#[test]
fn a_file_is_no_credential_outside_their_folder() {
    let service = Service::new();
    service.chmod("elsewhere/out", 0o440);
    service.chmod("credentials/out", 0o440);
    is_refused(service.refusal_inside("elsewhere/out"), "0440");
    is_refused(service.refusal("credentials/out", None), "0440");
    for nowhere in ["", "/nonexistent"] {
        is_refused(service.refusal("credentials/out", Some(Path::new(nowhere))), "0440");
    }
}

#[test]
fn a_path_that_only_seems_to_lead_there_makes_no_credential() {
    let service = Service::new();
    service.chmod("elsewhere/out", 0o440);
    symlink("../elsewhere/out", service.path("credentials/file")).unwrap();
    symlink("../elsewhere", service.path("credentials/folder")).unwrap();
    fs::create_dir(service.path("credentials-2")).unwrap();
    service.write("credentials-2/out", "a0".repeat(64));
    service.chmod("credentials-2/out", 0o440);
    for name in ["credentials/../elsewhere/out", "credentials/file", "credentials/folder/out", "credentials-2/out"] {
        is_refused(service.refusal_inside(name), "0440");
    }
}

#[test]
fn a_key_of_another_user_is_refused() {
    const NOBODY: u32 = 65_534;
    let service = Service::new();
    if !nix::unistd::geteuid().is_root() {
        // Then nobody else's file can be read anyway, if others may not use it.
        assert!(service.refusal_inside("elsewhere/out").is_none());
        return eprintln!("skipped: only root can give a file away");
    }
    for name in ["elsewhere/out", "credentials/out"] {
        for mode in [0o600, 0o400] {
            service.chmod(name, mode);
            chown(service.path(name), Some(NOBODY), None).unwrap();
            let said = service.refusal_inside(name).unwrap();
            assert!(said.contains("belongs to user 65534, not to root; run chown on it"), "{said}");
            chown(service.path(name), Some(0), Some(NOBODY)).unwrap();
            assert_eq!(service.refusal_inside(name), None);
        }
    }
}
