//! `sendonce simulator`

/// Where the simulator listens.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Example:\n  sendonce simulator --listen 127.0.0.1:4010 --smtp 127.0.0.1:4025\n\n\
                        It accepts everything and asks for no password: keep it on a loopback address."
)]
pub struct Args {
    /// Address and port of the vendors' HTTP interfaces and of /_control.
    #[arg(long, default_value = "127.0.0.1:4010", value_name = "ADDRESS")]
    pub listen: std::net::SocketAddr,

    /// Address and port to receive SMTP on; none when not given.
    #[arg(long, value_name = "ADDRESS")]
    pub smtp: Option<std::net::SocketAddr>,
}
