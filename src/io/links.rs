//! veth pairs and addresses in namespaces that we made ourselves, for the demo.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::netns;

/// Joins two namespaces by a cable: device `here` in this one, `there` in the other.
///
/// # Errors
/// Needs `CAP_NET_ADMIN` in both.
pub fn connect(here: &str, there: &str, namespace: &File) -> io::Result<()> {
    let (here, there, fd) = (here.to_owned(), there.to_owned(), namespace.as_raw_fd());
    run(None, async move |handle| {
        handle.link().add(LinkVeth::new(&here, &there).build()).execute().await?;
        handle.link().set(LinkUnspec::new_with_name(&there).setns_by_fd(fd).build()).execute().await
    })
}

/// Gives a device its addresses and brings it up. IPv6 addresses are usable at once: nobody else
/// is on the cable, so none can be a duplicate.
///
/// # Errors
/// Needs `CAP_NET_ADMIN`; the device must exist.
pub fn configure(namespace: Option<&File>, device: &str, addresses: &[IpNet]) -> io::Result<()> {
    let (device, addresses) = (device.to_owned(), addresses.to_owned());
    run(namespace, async move |handle| {
        let link = handle.link().get().match_name(&device).execute().try_next().await?;
        let index = link.map_or(0, |link| link.header.index);
        for address in addresses {
            let mut request = handle.address().add(index, address.addr(), address.prefix_len());
            if matches!(address.addr(), IpAddr::V6(_)) {
                request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
            }
            request.execute().await?;
        }
        handle.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await
    })
}

/// Which gateway the kernel would send a packet to, in the namespace of the calling thread; `None` if it would
/// go to no gateway, or nowhere.
///
/// # Errors
/// None but the system's own.
#[expect(clippy::wildcard_enum_match_arm, reason = "the kernel's lists are open")]
pub fn gateway(destination: IpAddr) -> io::Result<Option<IpAddr>> {
    run(None, async move |handle| {
        let question = RouteMessageBuilder::<IpAddr>::new().destination_prefix(destination, host_length(destination));
        let question = question.map_err(|error| rtnetlink::Error::InvalidNla(error.to_string()))?;
        // Without a route the answer is an error.
        let route = handle.route().get(question.build()).execute().try_next().await.ok().flatten();
        let gateways = route.into_iter().flat_map(|route| route.attributes);
        let mut gateways = gateways.filter_map(|attribute| match attribute {
            RouteAttribute::Gateway(gateway) => Some(gateway),
            _ => None,
        });
        Ok(gateways.next().and_then(|gateway| match gateway {
            RouteAddress::Inet(address) => Some(IpAddr::V4(address)),
            RouteAddress::Inet6(address) => Some(IpAddr::V6(address)),
            _ => None,
        }))
    })
}

const fn host_length(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Runs a conversation with the kernel inside a namespace.
pub(super) fn run<T, F>(namespace: Option<&File>, work: F) -> io::Result<T>
where
    T: Send,
    F: AsyncFnOnce(Handle) -> Result<T, rtnetlink::Error> + Send,
{
    let converse = || {
        // A runtime of its own, because the socket must be opened on this very thread.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            work(handle).await.map_err(io::Error::other)
        })
    };
    // And a thread of its own, because the caller's may be busy with another runtime.
    netns::alone(|| netns::within(namespace, converse))
}
