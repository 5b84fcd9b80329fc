//! What the browser loads besides pages: the bundle, the style sheet, the small files.
//!
//! They were compressed when they were built. Their names do not change with their content, so the browser
//! asks each time and is mostly told that nothing changed. Without them the pages still work, as plain HTML.

use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tower::ServiceExt as _;
use tower_http::services::ServeDir;

use super::render;

/// The built site, if there is one.
#[derive(Debug, Clone)]
pub struct Site {
    folder: Option<PathBuf>,
    files: Option<ServeDir>,
}

impl Site {
    /// Looks where the configuration says, else beside the program, else where a checkout builds it. Warns
    /// once when nothing is there.
    #[must_use]
    pub fn find(configured: Option<&Path>) -> Self {
        let folder = match configured {
            Some(folder) => Some(folder.to_owned()).filter(|folder| is_site(folder)),
            None => places().into_iter().find(|folder| is_site(folder)),
        };
        if folder.is_none() {
            tracing::warn!(
                "the built site was not found: pages are shown without style and live figures; \
                 run `make build`, or set server.site_dir"
            );
        }
        let files = folder.as_deref().map(|folder| {
            ServeDir::new(folder)
                .append_index_html_on_directories(false)
                .precompressed_br()
                .precompressed_gzip()
        });
        Self { folder, files }
    }

    /// Where it lies.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Answers a request for a file.
    pub async fn serve(&self, request: Request) -> Response {
        let missing = || render::plain(StatusCode::NOT_FOUND, "There is no such file.\n");
        let Some(files) = self.files.clone() else { return missing() };
        let Ok(found) = files.oneshot(request).await;
        if found.status() == StatusCode::NOT_FOUND {
            return missing();
        }
        let mut response = found.map(Body::new);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        response
    }
}

fn places() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let mut places: Vec<PathBuf> = beside.iter().map(|folder| folder.join("site")).collect();
    places.extend(beside.and_then(Path::parent).map(|folder| folder.join("site")));
    places.push(PathBuf::from("target/site"));
    places
}

/// A folder of that name is not enough: the style sheet is in it.
fn is_site(folder: &Path) -> bool {
    folder.join("pkg/sendonce.css").is_file()
}
