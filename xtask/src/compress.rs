//! `.br` and `.gz` beside each file that gains by it, so that the server compresses nothing while it serves.

use std::io::Write;

use anyhow::Result;
use flate2::write::GzEncoder;

use crate::tree::Files;

const GAINS: &[&str] =
    &[".js", ".wasm", ".css", ".svg", ".txt", ".json", ".webmanifest", ".html", ".ico"];
const BROTLI_QUALITY: u32 = 11;
const BROTLI_WINDOW_BITS: u32 = 22;

pub struct Size {
    pub name: String,
    pub plain: u64,
    pub brotli: u64,
}

pub fn beside(files: &mut Files) -> Result<Vec<Size>> {
    let mut sizes = Vec::new();
    let mut made = Vec::new();
    for (name, content) in &files.0 {
        if !GAINS.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        let br = brotli(content)?;
        sizes.push(Size {
            name: name.clone(),
            plain: content.len() as u64,
            brotli: br.len() as u64,
        });
        made.push((format!("{name}.br"), br));
        made.push((format!("{name}.gz"), gzip(content)?));
    }
    for (name, content) in made {
        files.add(name, content);
    }
    Ok(sizes)
}

fn brotli(content: &[u8]) -> Result<Vec<u8>> {
    let mut out =
        brotli::CompressorWriter::new(Vec::new(), 1 << 16, BROTLI_QUALITY, BROTLI_WINDOW_BITS);
    out.write_all(content)?;
    Ok(out.into_inner())
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(content)?;
    Ok(out.finish()?)
}
