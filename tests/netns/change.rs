//! Links, addresses and routes that go and come back.

use std::fs::File;
use std::net::IpAddr;

use adit::engine::{State, Tunnel};
use adit::io::{links, netns};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec};

use crate::by_hand::{firewall, no_firewall};
use crate::kit::{FAR, NEAR, Pair, Prober, REQUEST, REQUEST_BARE, Scene, address, tunnel, tunnel_of};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case("change::the_far_address_goes_and_comes_back", || address_changes("far")),
        case("change::the_near_address_goes_and_comes_back", || address_changes("near")),
        case("change::this_side's_link_goes_down_and_up", own_link_goes_down_and_up),
        case("change::the_cable_is_pulled_and_plugged", the_cable_is_pulled_and_plugged),
        case("change::without_a_route_it_is_down_with_the_reason", without_a_route_it_is_down),
        case("change::a_probe_longer_than_the_link_carries", a_probe_longer_than_the_link_carries),
        case("change::this_side's_own_firewall_refuses", own_firewall_refuses).with_nft(),
    ]
}

fn both_families() -> [Tunnel; 2] {
    [tunnel("four", REQUEST), tunnel_of("six", REQUEST, [NEAR[1], FAR[1]], 1)]
}

fn address_changes(side: &str) {
    let tunnels = both_families();
    let scene = Scene::healthy(&tunnels);
    let (namespace, device, addresses) = match side {
        "far" => (&scene.pair.far, "far0", FAR),
        _ => (&scene.pair.near, "near0", NEAR),
    };
    addresses.iter().for_each(|text| remove_address(namespace, device, address(text)));
    tunnels.iter().for_each(|tunnel| scene.prober.await_state(&tunnel.name, State::Down));
    let with_prefix = [format!("{}/24", addresses[0]), format!("{}/64", addresses[1])];
    let networks: Vec<_> = with_prefix.iter().map(|text| text.parse().unwrap()).collect();
    links::configure(Some(namespace), device, &networks).unwrap();
    tunnels.iter().for_each(|tunnel| scene.prober.await_state(&tunnel.name, State::Healthy));
}

fn own_link_goes_down_and_up() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    change_link(&scene.pair.near, "near0", |link| link.down());
    let view = scene
        .prober
        .await_view("t", "down, not sent", |view| view.state == State::Down && reason(view).starts_with("not sent: "));
    assert!(["not sent: Network is unreachable", "not sent: Network is down"].contains(&reason(&view).as_str()));
    assert_eq!(scene.prober.local_faults().iter().find(|(name, _)| *name == "send"), None, "no fault of its own");
    change_link(&scene.pair.near, "near0", |link| link.up());
    scene.prober.await_state("t", State::Healthy);
}

fn the_cable_is_pulled_and_plugged() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST), bare()]);
    change_link(&scene.pair.far, "far0", |link| link.down());
    scene.prober.await_state("t", State::Down);
    scene.prober.await_state("bare", State::Down);
    change_link(&scene.pair.far, "far0", |link| link.up());
    scene.prober.await_state("t", State::Healthy);
    scene.prober.await_state("bare", State::Healthy);
}

fn bare() -> Tunnel {
    let mut bare = tunnel("bare", REQUEST_BARE);
    bare.onion.encapsulation = adit::wire::gre::Options::keyed(1).into();
    bare
}

fn without_a_route_it_is_down() {
    let tunnels = [
        tunnel_of("four", REQUEST, [NEAR[0], "203.0.113.1"], 0),
        tunnel_of("six", REQUEST, [NEAR[1], "2001:db8:9::1"], 0),
    ];
    let pair = Pair::new();
    let prober = Prober::start(&pair, &tunnels);
    for Tunnel { name, .. } in &tunnels {
        prober.await_state(name, State::Down);
        let view = prober.view(name);
        assert_eq!(reason(&view), "not sent: Network is unreachable");
        assert_eq!((view.counters.sent, view.counters.local_faults), (0, 0), "{view:#?}");
        assert_eq!(prober.entered(name), [State::Down]);
    }
}

fn a_probe_longer_than_the_link_carries() {
    let mut long = tunnel("long", REQUEST);
    (long.onion.size, long.onion.encapsulation) = (1_000, adit::wire::gre::Options::keyed(1).into());
    let mut long6 = tunnel_of("long6", REQUEST, [NEAR[1], FAR[1]], 0);
    (long6.onion.size, long6.onion.encapsulation) = (1_300, adit::wire::gre::Options::keyed(1).into());
    let tunnels = [long6, long, tunnel("usual", REQUEST)];
    let scene = Scene::healthy(&tunnels);
    // The least that IPv6 allows: too little for the one probe, enough for the others.
    change_link(&scene.pair.near, "near0", |link| link.mtu(1_280));
    scene.prober.await_state("long6", State::Down);
    assert_eq!(reason(&scene.prober.view("long6")), "not sent: Message too long");
    assert_ne!(scene.prober.view("long").state, State::Down);
    change_link(&scene.pair.near, "near0", |link| link.mtu(576));
    scene.prober.await_state("long", State::Down);
    assert_eq!(reason(&scene.prober.view("long")), "not sent: Message too long");
    assert_ne!(scene.prober.view("usual").state, State::Down);
    change_link(&scene.pair.near, "near0", |link| link.mtu(1_500));
    scene.prober.await_state("long", State::Degraded);
}

fn own_firewall_refuses() {
    let scene = Scene::healthy(&[tunnel("t", REQUEST)]);
    firewall(&scene.pair.near, "output", "meta l4proto gre drop");
    let view = scene
        .prober
        .await_view("t", "down, not sent", |view| view.state == State::Down && reason(view).starts_with("not sent: "));
    assert_eq!(reason(&view), "not sent: Operation not permitted");
    no_firewall(&scene.pair.near);
    scene.prober.await_state("t", State::Healthy);
}

fn reason(view: &adit::engine::snapshot::TunnelView) -> String {
    view.last_failure.as_ref().map(|failure| failure.reason.clone()).unwrap_or_default()
}

fn change_link(
    namespace: &File,
    device: &'static str,
    change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec> + Send,
) {
    let change = change(LinkUnspec::new_with_name(device)).build();
    ask_kernel(namespace, async |handle: Handle| handle.link().set(change).execute().await);
}

fn remove_address(namespace: &File, device: &'static str, gone: IpAddr) {
    ask_kernel(namespace, async move |handle: Handle| {
        let link = handle.link().get().match_name(device).execute().try_next().await?.unwrap();
        let addresses = handle.address().get().set_link_index_filter(link.header.index).execute();
        let addresses: Vec<_> = addresses.try_collect().await?;
        let is_it =
            |attribute: &AddressAttribute| matches!(attribute, AddressAttribute::Address(known) if *known == gone);
        let found = addresses.into_iter().find(|address| address.attributes.iter().any(is_it)).unwrap();
        handle.address().del(found).execute().await
    });
}

fn ask_kernel(namespace: &File, work: impl AsyncFnOnce(Handle) -> Result<(), rtnetlink::Error> + Send) {
    let done = netns::within(Some(namespace), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            work(handle).await.map_err(std::io::Error::other)
        })
    });
    done.unwrap();
}
