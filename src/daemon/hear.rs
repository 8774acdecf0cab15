//! What the loop hears of the kernel: of its devices and associations, and of its routes.

use std::io;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Daemon;
use super::kernel::News;
use super::steer;

impl Daemon {
    /// Takes what is known of the kernel before anything is sent.
    pub(super) fn hear_of_kernel(&mut self) {
        self.renew();
        let next = |daemon: &mut Self| daemon.heard.take().or_else(|| daemon.kernel.as_mut()?.try_recv().ok());
        while self.renewing.is_none()
            && let Some(news) = next(self)
        {
            // What could not be used has been told, and is tried again.
            let _ = self.learn(news);
            self.renew();
        }
        self.spaces.note_interfaces(&mut self.engine);
    }

    pub(super) fn learn(&mut self, news: News) -> io::Result<()> {
        let (now, spaces, engine) = (self.clock.now(), &mut self.spaces, &mut self.engine);
        match news {
            News::There(namespace, sockets) => spaces.add(engine, now, namespace, sockets)?,
            News::Missing(namespace, why) => spaces.remove(engine, now, namespace, &why),
            News::Way(egress, way) => spaces.lead(engine, now, egress, way),
            News::Associations(namespace, Ok(known)) => engine.handle_kernel_associations(now, namespace, known),
            News::Associations(_, Err(why)) => engine.handle_unseen(now, &why),
            News::Withheld(tunnel, why) => engine.handle_withheld(now, tunnel, why),
            News::Renewed(renewal) => self.begin_renewal(renewal),
            News::NotRenewed(questions, why) => self.refuse_renewal(&questions, &why),
        }
        Ok(())
    }

    pub(super) fn hear_of_routes(&mut self, news: Option<steer::News>) {
        let now = self.clock.now();
        let Some(news) = news else {
            let what = "nobody keeps the kernel's routes any more: they stay as they are; restart adit".to_owned();
            return self.engine.handle_kernel_warning(now, what);
        };
        match news {
            // That is for whoever waits for the whole daemon.
            steer::News::Reconciled => {}
            // Others are of routes that had these numbers before.
            steer::News::Standings(generation, standings) if generation == self.generation => {
                self.engine.handle_standings(standings);
            }
            steer::News::Standings(..) => {}
            steer::News::Drift { netns, count, changes } => {
                self.engine.handle_kernel_drift(now, netns, count, changes);
            }
            steer::News::Overrun => self.engine.handle_kernel_overrun(now),
            steer::News::Warning(what) => self.engine.handle_kernel_warning(now, what),
        }
    }
}

/// The next news of the kernel; none ever, where nobody looks or it is no longer seen.
pub(super) async fn news(kernel: &mut Option<UnboundedReceiver<News>>) -> News {
    let news = match kernel {
        Some(kernel) => kernel.recv().await,
        None => None,
    };
    match news {
        Some(news) => news,
        None => std::future::pending().await,
    }
}
