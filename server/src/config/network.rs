//! Networks in configuration: an address, or an address and the length of its prefix.

use std::net::IpAddr;

/// A network such as `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads `address` or `address/bits`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.trim().parse().ok())?;
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether this address lies in it. An IPv4 address in its IPv6 form is that IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let top = |bits: u128, width: u32| bits.checked_shr(width - self.bits).unwrap_or(0);
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) if self.bits <= 32 => {
                top(u32::from(own).into(), 32) == top(u32::from(other).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => top(own.into(), 128) == top(other.into(), 128),
            _ => false,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn an_address_lies_in_its_networks_and_in_no_others() {
        for (network, address, expected) in [
            ("127.0.0.0/8", "127.1.2.3", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::1", "::1", true),
            ("2001:db8::/32", "2001:db8:5::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("10.0.0.0/8", "::ffff:10.2.3.4", true),
        ] {
            let network = Network::parse(network).expect("a network");
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
        for wrong in ["", "10.0.0.0/33", "host", "10.0.0.0/x", "::1/129"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
