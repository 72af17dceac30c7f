// kafkajs on a secured listener: what task.py tells of.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const PAUSE_MS = 100
const task = Object.fromEntries(process.argv.slice(2).map((argument) => {
  const at = argument.indexOf('=')
  return [argument.slice(0, at), argument.slice(at + 1)]
}))
const topic = task.topic

const client = new Kafka({
  brokers: task.bootstrap.split(','),
  ssl: { ca: fs.readFileSync(task.authority, 'utf8') },
  sasl: task.mechanism === 'OAUTHBEARER'
    ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: task.password }) }
    : { mechanism: task.mechanism.toLowerCase(), username: task.username, password: task.password },
  reauthenticationThreshold: 1000, // how long before the end of a session; 10 s unless it is set
  logLevel: logLevel.NOTHING,
})

const send = (producer, value) => producer.send({ topic, messages: [{ value }] })

async function use(made, story) {
  await made.connect()
  try {
    return await story(made)
  } finally {
    await made.disconnect()
  }
}

async function describe() {
  await use(client.admin(), async (admin) => {
    const found = await admin.fetchTopicMetadata({ topics: [topic] })
    console.log('partitions', found.topics[0].partitions.length)
  })
}

async function work() {
  await describe()
  await use(client.producer(), async (producer) => {
    for (const value of ['0', '1', '2']) await send(producer, value)
  })
  const settings = { transactionalId: topic, maxInFlightRequests: 1, idempotent: true }
  await use(client.producer(settings), async (producer) => {
    const aborted = await producer.transaction()
    await send(aborted, 'aborted')
    await aborted.abort()
    const committed = await producer.transaction()
    await send(committed, '3')
    await committed.commit()
  })
  await use(client.consumer({ groupId: topic }), async (consumer) => {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    let end
    const ended = new Promise((resolve) => { end = resolve })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const value = message.value.toString()
        console.log('read', value)
        if (value === '3') end({ topic, partition, offset: String(Number(message.offset) + 1) })
      },
    })
    await consumer.commitOffsets([await ended])
  })
  console.log('committed')
}

async function stay() {
  await use(client.producer(), async (producer) => {
    let count = 0
    const deadline = Date.now() + 1000 * Number(task.seconds)
    do {
      await send(producer, 'x')
      count++
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    } while (Date.now() < deadline)
    console.log('sent', count)
  })
}

const stories = { work, list: describe, send: stay, stay }
// What refused is the cause of what gave up, which is all that the promise tells.
stories[task.story]().catch((error) => {
  while (error.cause) error = error.cause
  console.log('error', error.type && error.type !== 'UNKNOWN' ? error.type : error.name)
})
