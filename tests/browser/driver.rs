//! A headless browser, driven by WebDriver (<https://www.w3.org/TR/webdriver2/>) over plain HTTP.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use adit::io::netns;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::kit::eventually;

const PROGRAM: &str = "chromedriver";
/// In the near namespace, where nothing else is.
const ADDRESS: &str = "127.0.0.1:9515";
/// A browser on a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why there is no browser, if there is none.
pub(crate) fn missing() -> Option<String> {
    let runs = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let lacks = |program: &str, package| format!("{program} cannot be run (Debian package {package})");
    [(PROGRAM, "chromium-driver"), ("chromium", "chromium")]
        .into_iter()
        .find_map(|(program, package)| (!runs(program)).then(|| lacks(program, package)))
}

/// One window.
pub(crate) struct Browser {
    namespace: File,
    driver: Child,
    session: String,
    /// Its profile.
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Opens a window in a namespace.
    pub(crate) fn open(namespace: &File) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--port=9515", "--log-level=SEVERE"]).stdin(Stdio::null()).stdout(Stdio::null());
        // Whatever it starts ends with it.
        command.env("HOME", folder.path()).process_group(0);
        let driver = netns::within(Some(namespace), || command.spawn()).unwrap();
        let namespace = namespace.try_clone().unwrap();
        let mut browser = Self { namespace, driver, session: String::new(), _folder: folder };
        eventually("a driver", || browser.reach().is_ok());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &format!("--user-data-dir={}", browser._folder.path().join("profile").display()),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let opened = browser.command("POST", "/session", &wanted);
        browser.session = format!("/session/{}", opened["sessionId"].as_str().unwrap());
        browser.post("/timeouts", json!({"script": 60_000, "pageLoad": 60_000}));
        browser
    }

    fn reach(&self) -> std::io::Result<TcpStream> {
        let stream = netns::within(Some(&self.namespace), || TcpStream::connect(ADDRESS))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// One request and the value of its answer, if it is a good one.
    fn try_command(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let text = body.to_string();
        let ask = || {
            let mut stream = self.reach()?;
            let head = format!("host: localhost\r\ncontent-type: application/json\r\ncontent-length: {}", text.len());
            write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{text}")?;
            let mut answer = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while answer.read_line(&mut line)? > 2 {
                let field = line.trim_end().split_once(':');
                let field = field.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
                length = field.map_or(length, |(_, value)| value.trim().parse().unwrap_or(0));
                line.clear();
            }
            let mut bytes = vec![0; length];
            answer.read_exact(&mut bytes)?;
            std::io::Result::Ok(bytes)
        };
        let answer = ask().map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        if answer["value"]["error"].is_string() {
            return Err(answer["value"].to_string());
        }
        Ok(answer["value"].take())
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_command(method, path, body).unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    fn post(&self, path: &str, body: Value) -> Value {
        self.command("POST", &format!("{}{path}", self.session), &body)
    }

    /// Loads a page.
    pub(crate) fn load(&self, address: &str) {
        self.post("/url", json!({"url": address}));
    }

    /// What a script that is the body of a function returns, run in the page.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []}))
    }

    /// The same of a script that ends by calling `done`.
    pub(crate) fn run_until_done(&self, script: &str) -> Value {
        let script = format!("const done = arguments[0]; {script}");
        self.post("/execute/async", json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn await_true(&self, expression: &str) {
        eventually(expression, || self.run(&format!("return Boolean({expression})")) == true);
    }

    /// A command to the browser beneath the page, by the DevTools protocol.
    pub(crate) fn beneath(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// Types keys, as a person does.
    pub(crate) fn press(&self, keys: &[&str]) {
        let strokes = keys
            .iter()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]);
        let strokes: Vec<Value> = strokes.collect();
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}));
    }

    /// A window of this size; a small one as a phone has it.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let phone = width < 600;
        let parameters =
            json!({"width": width, "height": height, "deviceScaleFactor": if phone { 2 } else { 1 }, "mobile": phone});
        self.beneath("Emulation.setDeviceMetricsOverride", parameters);
    }

    /// What a person prefers.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.beneath("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// What the console has of errors since it was asked last.
    pub(crate) fn errors(&self) -> Vec<String> {
        let entries = self.post("/se/log", json!({"type": "browser"}));
        let severe = entries.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Keeps a picture, where the environment names a folder for them (ADIT_SCREENSHOTS).
    pub(crate) fn keep_picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("ADIT_SCREENSHOTS") else { return };
        let picture = self.beneath("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let mut bytes = vec![0; picture["data"].as_str().unwrap().len()];
        let bytes =
            <base64ct::Base64 as base64ct::Encoding>::decode(picture["data"].as_str().unwrap(), &mut bytes).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its last window; the driver, and what may be left, by a signal.
        let _ = self.try_command("DELETE", &self.session, &Value::Null);
        let _ = killpg(Pid::from_raw(self.driver.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.driver.wait();
    }
}
