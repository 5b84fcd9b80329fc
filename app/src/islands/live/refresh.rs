//! What the picker offers.

/// How the person wants the page to keep itself current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing is read and no stream is open.
    Off,
    /// Every so many seconds.
    Every(u32),
    /// When the server says that something changed.
    Live,
}

impl Refresh {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "live" => Some(Self::Live),
            "2" => Some(Self::Every(2)),
            "5" => Some(Self::Every(5)),
            "15" => Some(Self::Every(15)),
            "60" => Some(Self::Every(60)),
            _ => None,
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::Off => "off".into(),
            Self::Live => "live".into(),
            Self::Every(seconds) => seconds.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for refresh in [
            Refresh::Off,
            Refresh::Live,
            Refresh::Every(2),
            Refresh::Every(5),
            Refresh::Every(15),
            Refresh::Every(60),
        ] {
            assert_eq!(Refresh::parse(&refresh.name()), Some(refresh));
        }
        assert_eq!(
            Refresh::parse("0"),
            None,
            "a remembered value of another version is not followed"
        );
    }
}
