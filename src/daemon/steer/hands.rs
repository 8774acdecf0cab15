//! What changes a namespace's routes, and sees them: the kernel's sockets, or, in a dry run, a printer.

use std::fs::File;
use std::io::{self, Write};
use std::task::Context;

use ipnet::IpNet;

use crate::config::{Kernel, Netns};
use crate::io::fib::{self, Monitor, Opened, Reader, Writer};
use crate::io::netns;
use crate::steer::{Change, Picture, Refusal, shell_word};

pub(super) use crate::io::fib::Heard;

pub(super) struct Hands {
    writer: Option<Writer>,
    reader: Reader,
    monitor: Option<Monitor>,
    /// Of a dry run: what makes an `ip` command one in this namespace.
    ip: String,
}

impl Hands {
    /// Opens the sockets in a namespace.
    pub(super) fn open(file: Option<&File>, kernel: &Kernel, name: Option<&Netns>, dry_run: bool) -> io::Result<Self> {
        let buffer = usize::try_from(kernel.receive_buffer).unwrap_or(usize::MAX);
        let Opened { writer, reader, listener } = netns::within(file, || fib::open(kernel.protocol, buffer))?;
        let word = |name: &Netns| shell_word(&name.to_string());
        let ip = match name {
            None => "ip".to_owned(),
            Some(name) if name.to_string().starts_with('/') => format!("nsenter --net={} ip", word(name)),
            Some(name) => format!("ip -n {}", word(name)),
        };
        let (writer, monitor) = if dry_run { (None, None) } else { (Some(writer), Some(listener.register()?)) };
        Ok(Self { writer, reader, monitor, ip })
    }

    /// Makes changes, and says what was refused.
    pub(super) fn carry_out(
        &mut self,
        changes: &[Change],
        text: impl Fn(&Change) -> String,
    ) -> io::Result<Vec<Refusal>> {
        if let Some(writer) = &mut self.writer {
            return writer.carry_out(changes);
        }
        let mut out = io::stdout().lock();
        for change in changes {
            let text = text(change);
            writeln!(out, "{}", text.replacen("ip", &self.ip, 1))?;
        }
        out.flush()?;
        Ok(Vec::new())
    }

    pub(super) fn picture(
        &mut self,
        concerns: impl Fn(u32, &IpNet) -> bool,
        go_on: impl FnMut() -> bool,
    ) -> io::Result<Option<Picture>> {
        self.reader.picture(concerns, go_on)
    }

    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> bool {
        self.monitor.as_ref().is_some_and(|monitor| monitor.poll_ready(context).is_ready())
    }

    pub(super) fn hear(&mut self, concerns: impl Fn(u32, &IpNet) -> bool) -> io::Result<Heard> {
        self.monitor.as_mut().map_or(Ok(Heard::Nothing), |monitor| monitor.heard(concerns))
    }
}

/// Has the kernel announce groups of next hops only, not each route over them.
pub(super) fn quieten(file: Option<&File>) -> io::Result<()> {
    netns::within(file, || fib::set_notify_routes(false))
}
