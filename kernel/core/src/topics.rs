//! The topics of a run, each once, and finds by small keys.

use std::collections::HashMap;

use crate::hash::java_hash_from;

const FEW: usize = 16;
/// The longest topic that a record can name.
pub const MAX_TOPIC_SIZE: usize = 127;
/// Where delayed messages and timer messages wait, whose queues hold times instead of tag codes.
pub const HOLD_TIMES: [&str; 2] = ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"];

/// A topic, and the hash with which the hashes of its keys begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    pub seed: i32,
}

/// Topics by number, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    topics: Vec<Topic>,
    numbers: HashMap<String, u32>,
    last: u32,
}

impl Topics {
    /// The number of a topic, which is new or not.
    pub fn number(&mut self, name: &str) -> u32 {
        if self.name(self.last) == Some(name) {
            return self.last;
        }
        let known = if self.topics.len() <= FEW {
            let found = self.topics.iter().position(|topic| topic.name == name);
            found.map(|number| number as u32)
        } else {
            self.numbers.get(name).copied()
        };
        self.last = known.unwrap_or_else(|| self.add(name));
        self.last
    }

    fn add(&mut self, name: &str) -> u32 {
        let number = self.topics.len() as u32;
        let seed = java_hash_from(java_hash_from(0, name), "#");
        self.topics.push(Topic {
            name: name.to_owned(),
            seed,
        });
        if self.topics.len() == FEW + 1 {
            let all = self.topics.iter().zip(0..);
            self.numbers = all.map(|(topic, at)| (topic.name.clone(), at)).collect();
        } else if self.topics.len() > FEW {
            self.numbers.insert(name.to_owned(), number);
        }
        number
    }

    pub fn name(&self, number: u32) -> Option<&str> {
        self.get(number).map(|topic| topic.name.as_str())
    }

    pub fn get(&self, number: u32) -> Option<&Topic> {
        self.topics.get(number as usize)
    }

    pub fn all(&self) -> &[Topic] {
        &self.topics
    }
}

/// A queue: the number of a topic, and a queue id.
pub type Queue = (u32, i32);

/// Places of queues in a list, by queue.
#[derive(Default)]
pub struct Queues {
    queues: Vec<Queue>,
    places: HashMap<Queue, usize>,
    last: usize,
}

impl Queues {
    /// The place of a queue, and whether it is new.
    pub fn place(&mut self, queue: Queue) -> (usize, bool) {
        if self.queues.get(self.last) == Some(&queue) {
            return (self.last, false);
        }
        let known = if self.queues.len() <= FEW {
            self.queues.iter().position(|other| *other == queue)
        } else {
            self.places.get(&queue).copied()
        };
        let is_new = known.is_none();
        self.last = known.unwrap_or(self.queues.len());
        if is_new {
            self.queues.push(queue);
            if self.queues.len() == FEW + 1 {
                self.places = self.queues.iter().copied().zip(0..).collect();
            } else if self.queues.len() > FEW {
                self.places.insert(queue, self.last);
            }
        }
        (self.last, is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_has_one_number_however_many_there_are() {
        let mut topics = Topics::default();
        for round in 0..2 {
            for number in 0..50 {
                assert_eq!(topics.number(&format!("topic-{number}")), number, "{round}");
            }
        }
        assert_eq!(topics.all().len(), 50);
        assert_eq!(topics.name(49), Some("topic-49"));
        assert_eq!(topics.name(50), None);
    }

    #[test]
    fn each_queue_has_one_place_however_many_there_are() {
        let mut queues = Queues::default();
        for round in 0..2 {
            for number in 0..50 {
                let queue = (number % 7, number as i32);
                assert_eq!(queues.place(queue), (number as usize, round == 0));
            }
        }
    }
}
