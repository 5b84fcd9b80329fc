//! Group commit: callers hand in a request and wait; one task drains what is there and commits once.
//!
//! Idle latency is one commit; under load groups form by themselves. A group that fails is run again one
//! by one, so that one row's conflict never answers another's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::store::Error;

/// What a caller gets when the group could not take the request.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The queue is at its limit: shed.
    #[error("the queue is full")]
    Full,
    /// The process stops.
    #[error("the process is stopping")]
    Closed,
    #[error(transparent)]
    Store(#[from] Arc<Error>),
}

type Answer<O> = oneshot::Sender<Result<O, Arc<Error>>>;

/// The queue's end that the tasks share.
type Waiting<I, O> = Arc<tokio::sync::Mutex<mpsc::Receiver<(I, Answer<O>)>>>;

/// Runs one group in one transaction: as many answers as requests, in their order.
pub type Run<I, O> = Arc<
    dyn Fn(Vec<I>) -> Pin<Box<dyn Future<Output = Result<Vec<O>, Error>> + Send>> + Send + Sync,
>;

/// The entrance to the group-commit tasks.
#[derive(Debug)]
pub struct Batcher<I, O> {
    queue: mpsc::Sender<(I, Answer<O>)>,
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

/// How often one request is tried again after the database was busy.
const BUSY_TRIES: usize = 5;

impl<I: Clone + Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// Starts the task. It ends when the last entrance is dropped and the queue is empty.
    #[must_use]
    pub fn start(queue_max: usize, group_max: usize, run: Run<I, O>) -> Self {
        Self::start_many(queue_max, group_max, 1, run)
    }

    /// Starts several tasks on one queue, for a database whose commits need not wait for one another.
    /// Groups of different tasks may meet in the same rows: `run` must be right under such races.
    #[must_use]
    pub fn start_many(queue_max: usize, group_max: usize, writers: usize, run: Run<I, O>) -> Self {
        let (queue, waiting) = mpsc::channel::<(I, Answer<O>)>(queue_max.max(1));
        // A tokio mutex: whoever holds it waits for the next group, the others wait for their turn.
        let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
        for _ in 0..writers.max(1) {
            Self::write(Arc::clone(&waiting), group_max, Arc::clone(&run));
        }
        Self { queue }
    }

    fn write(waiting: Waiting<I, O>, group_max: usize, run: Run<I, O>) {
        tokio::spawn(async move {
            let mut group = Vec::with_capacity(group_max);
            loop {
                let count = waiting.lock().await.recv_many(&mut group, group_max.max(1)).await;
                if count == 0 {
                    return;
                }
                let (inputs, answers): (Vec<I>, Vec<Answer<O>>) = group.drain(..).unzip();
                // In a task of its own: a panic in one group must not close the entrance for all.
                let run = Arc::clone(&run);
                let done = tokio::spawn(async move { run_group(&run, inputs).await }).await;
                match done {
                    Ok(results) => {
                        for (answer, result) in answers.into_iter().zip(results) {
                            // A caller that went away has its event all the same: nothing to undo.
                            let _ = answer.send(result);
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "a group panicked; its callers are told to ask again");
                    }
                }
            }
        });
    }

    /// Hands in one request and waits for its commit.
    ///
    /// # Errors
    /// [`BatchError::Full`] at once when the queue is at its limit.
    pub async fn submit(&self, input: I) -> Result<O, BatchError> {
        let (answer, result) = oneshot::channel();
        self.queue.try_send((input, answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => BatchError::Full,
            mpsc::error::TrySendError::Closed(_) => BatchError::Closed,
        })?;
        result.await.map_err(|_| BatchError::Closed)?.map_err(BatchError::Store)
    }

    /// As [`Batcher::submit`], but waits for room: for work that must not be shed.
    ///
    /// # Errors
    /// [`BatchError::Closed`], or the store's own.
    pub async fn submit_waiting(&self, input: I) -> Result<O, BatchError> {
        let (answer, result) = oneshot::channel();
        self.queue.send((input, answer)).await.map_err(|_| BatchError::Closed)?;
        result.await.map_err(|_| BatchError::Closed)?.map_err(BatchError::Store)
    }
}

async fn run_group<I: Clone, O>(run: &Run<I, O>, inputs: Vec<I>) -> Vec<Result<O, Arc<Error>>> {
    let count = inputs.len();
    match run(inputs.clone()).await {
        Ok(outputs) if outputs.len() == count => outputs.into_iter().map(Ok).collect(),
        // The whole group shares this fate: nothing was committed, or nobody knows.
        Err(error @ (Error::Unavailable { .. } | Error::CommitUnknown { .. })) => {
            let error = Arc::new(error);
            inputs.iter().map(|_| Err(Arc::clone(&error))).collect()
        }
        _ => {
            let mut results = Vec::with_capacity(count);
            for input in inputs {
                results.push(run_one(run, input).await);
            }
            results
        }
    }
}

async fn run_one<I: Clone, O>(run: &Run<I, O>, input: I) -> Result<O, Arc<Error>> {
    let mut tries = 0;
    loop {
        tries += 1;
        match run(vec![input.clone()]).await {
            Ok(mut outputs) => {
                return outputs
                    .pop()
                    .ok_or_else(|| Arc::new(Error::RowsAffected { expected: 1, actual: 0 }));
            }
            // Busy: again. A conflict: somebody was first, and reading again finds out who.
            Err(Error::Busy | Error::Conflict { .. } | Error::RowsAffected { .. })
                if tries < BUSY_TRIES => {}
            Err(error) => return Err(Arc::new(error)),
        }
    }
}
