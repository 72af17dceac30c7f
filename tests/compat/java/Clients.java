import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What Java's clients do, one story a command: `STORY BOOTSTRAP TOPIC [more]`. What happened goes to stdout. */
public final class Clients {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long SECONDS_MAX = 20;
    private static final Map<String, String> NEW_PROTOCOL = Map.of("group.protocol", "consumer");

    private Clients() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        String topic = arguments[2];
        switch (arguments[0]) {
            case "produce" -> produce(bootstrap, topic, arguments[3], Integer.parseInt(arguments[4]));
            case "read" -> read(bootstrap, topic, Integer.parseInt(arguments[3]));
            case "rebalance" -> rebalance(bootstrap, topic, arguments[3]);
            case "static" -> staticMember(bootstrap, topic);
            case "commit" -> commit(bootstrap, topic, Map.of());
            case "new-rebalance" -> newRebalance(bootstrap, topic, arguments[3]);
            case "new-static" -> newStaticMember(bootstrap, topic);
            case "new-pattern" -> newPattern(bootstrap, topic);
            case "new-commit" -> commit(bootstrap, topic, NEW_PROTOCOL);
            case "new-refused" -> newRefused(bootstrap, topic);
            case "both" -> bothProtocols(bootstrap, topic);
            case "validate" -> validate(bootstrap, topic, Long.parseLong(arguments[3]), Integer.parseInt(arguments[4]));
            case "transaction" -> transaction(bootstrap, topic);
            case "admin" -> admin(bootstrap, topic);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    // Records.

    private static KafkaProducer<String, String> producer(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "acks", "all", "delivery.timeout.ms", "20000",
                "request.timeout.ms", "10000"));
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** Prints the offsets of the first and the last record. */
    private static void produce(String bootstrap, String topic, String compression, int count) throws Exception {
        Map<String, String> settings =
                Map.of("enable.idempotence", "true", "compression.type", compression, "linger.ms", "5");
        try (KafkaProducer<String, String> producer = producer(bootstrap, settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, "key " + i, "value " + i);
                record.headers().add("header", ("h" + i).getBytes());
                sent.add(producer.send(record));
            }
            long first = sent.get(0).get(SECONDS_MAX, TimeUnit.SECONDS).offset();
            long last = sent.get(count - 1).get(SECONDS_MAX, TimeUnit.SECONDS).offset();
            System.out.println(first + " " + last);
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit",
                "false", "fetch.max.wait.ms", "100", "request.timeout.ms", "10000", "default.api.timeout.ms", "20000"));
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    /** Prints a line a record of partition 0, and where the consumer stands then. */
    private static void read(String bootstrap, String topic, int count) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, Map.of())) {
            consumer.assign(List.of(partition));
            int[] found = {0};
            until(() -> {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    String header = new String(record.headers().lastHeader("header").value());
                    String epoch = record.leaderEpoch().map(String::valueOf).orElse("-");
                    System.out.println(record.offset() + "|" + record.timestamp() + "|" + record.key() + "|" + record.value()
                            + "|" + header + "|" + epoch);
                    found[0]++;
                }
                return found[0] >= count;
            }, "all records");
            System.out.println("position " + consumer.position(partition));
        }
    }

    // Groups.

    /** A member that notes what it was given and what was taken from it. */
    private static final class Member implements AutoCloseable {
        final String name;
        final KafkaConsumer<String, String> consumer;
        final Set<Integer> partitions = new TreeSet<>();
        int revokedInAll = 0;

        Member(String name, String bootstrap, String topic, Map<String, String> settings) {
            this.name = name;
            Map<String, String> all = new HashMap<>(Map.of("group.id", topic, "client.id", name));
            if (!settings.containsKey("group.protocol")) {
                all.putAll(Map.of("session.timeout.ms", "10000", "heartbeat.interval.ms", "100"));
            }
            all.putAll(settings);
            consumer = consumer(bootstrap, all);
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> given) {
                    given.forEach(partition -> partitions.add(partition.partition()));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                    revokedInAll += taken.size();
                    taken.forEach(partition -> partitions.remove(partition.partition()));
                }
            };
            if (name.startsWith("pattern")) {
                consumer.subscribe(new SubscriptionPattern(topic + "(-.*)?"), listener);
            } else {
                consumer.subscribe(List.of(topic), listener);
            }
        }

        @Override
        public void close() {
            consumer.close();
        }

        @Override
        public String toString() {
            return name + " has " + partitions.size() + " partitions, lost " + revokedInAll;
        }
    }

    /** One member, then two, then one: prints what each has. The topic has four partitions. */
    private static void rebalance(String bootstrap, String topic, String assignor) {
        rebalance(bootstrap, topic,
                Map.of("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor));
    }

    private static void newRebalance(String bootstrap, String topic, String assignor) {
        rebalance(bootstrap, topic, Map.of("group.protocol", "consumer", "group.remote.assignor", assignor));
    }

    private static void rebalance(String bootstrap, String topic, Map<String, String> settings) {
        Member second;
        try (Member first = new Member("first", bootstrap, topic, settings)) {
            poll("the first has all", () -> first.partitions.size() == 4, first);
            System.out.println(first);
            second = new Member("second", bootstrap, topic, settings);
            poll("each has two", () -> first.partitions.size() == 2 && second.partitions.size() == 2, first, second);
            System.out.println(first);
            System.out.println(second);
            Set<Integer> all = new TreeSet<>(first.partitions);
            all.addAll(second.partitions);
            System.out.println("together " + all);
        }
        try (second) {
            poll("the second has all", () -> second.partitions.size() == 4, second);
            System.out.println(second);
        }
    }

    /** A static member that goes and comes again within its session is given the same, without a rebalance. */
    private static void staticMember(String bootstrap, String topic) {
        Map<String, String> settings = Map.of("group.instance.id", "number-one");
        int generation;
        Set<Integer> before;
        try (Member member = new Member("before", bootstrap, topic, settings)) {
            poll("all partitions", () -> member.partitions.size() == 4, member);
            generation = member.consumer.groupMetadata().generationId();
            before = new TreeSet<>(member.partitions);
        }
        try (Member member = new Member("after", bootstrap, topic, settings)) {
            poll("all partitions", () -> member.partitions.size() == 4, member);
            System.out.println("same partitions " + before.equals(member.partitions));
            System.out.println("same generation " + (generation == member.consumer.groupMetadata().generationId()));
            try (Member thief = new Member("thief", bootstrap, topic, settings)) {
                poll("the thief has all", () -> thief.partitions.size() == 4, thief);
                try {
                    poll("fenced", () -> false, member);
                } catch (org.apache.kafka.common.errors.FencedInstanceIdException fenced) {
                    System.out.println("the other is fenced");
                }
            }
        }
    }

    /** A static member of the new protocol goes and comes again; meanwhile another one cannot take its place. */
    private static void newStaticMember(String bootstrap, String topic) {
        Map<String, String> settings = Map.of("group.instance.id", "number-one", "group.protocol", "consumer");
        int epoch;
        try (Member member = new Member("before", bootstrap, topic, settings)) {
            poll("all partitions", () -> member.partitions.size() == 4, member);
            epoch = member.consumer.groupMetadata().generationId();
        }
        try (Member member = new Member("after", bootstrap, topic, settings)) {
            poll("all partitions", () -> member.partitions.size() == 4, member);
            System.out.println("same epoch " + (epoch == member.consumer.groupMetadata().generationId()));
            try (Member thief = new Member("thief", bootstrap, topic, settings)) {
                poll("refused", () -> false, thief);
            } catch (KafkaException refused) {
                System.out.println("the thief: " + refused.getClass().getSimpleName());
            }
        }
    }

    /** A pattern that the broker looks up finds a topic that is made later, too. */
    private static void newPattern(String bootstrap, String topic) throws Exception {
        try (Member member = new Member("pattern", bootstrap, topic, NEW_PROTOCOL);
                Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            poll("the first topic", () -> member.consumer.assignment().size() == 4, member);
            System.out.println("assigned " + member.consumer.assignment().size());
            got(admin.createTopics(List.of(new NewTopic(topic + "-later", 3, (short) 1))).all());
            poll("both topics", () -> member.consumer.assignment().size() == 7, member);
            System.out.println("assigned " + member.consumer.assignment().size());
        }
    }

    /** What the broker refuses reaches the program. */
    private static void newRefused(String bootstrap, String topic) {
        Map<String, String> settings = Map.of("group.protocol", "consumer", "group.remote.assignor", "none");
        try (Member member = new Member("refused", bootstrap, topic, settings)) {
            poll("refused", () -> false, member);
        } catch (KafkaException refused) {
            System.out.println("an assignor: " + refused.getClass().getSimpleName());
        }
        try (KafkaConsumer<String, String> consumer =
                consumer(bootstrap, Map.of("group.id", topic, "group.protocol", "consumer"))) {
            consumer.subscribe(new SubscriptionPattern("("));
            until(() -> {
                consumer.poll(POLL);
                return false;
            }, "refused");
        } catch (KafkaException refused) {
            System.out.println("a pattern: " + refused.getClass().getSimpleName());
        }
    }

    /** A classic group goes over to the new protocol, a member at a time, and back again. */
    private static void bothProtocols(String bootstrap, String topic) {
        Map<String, String> classic = Map.of("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "session.timeout.ms", "45000");
        Member second;
        try (Member first = new Member("classic", bootstrap, topic, classic)) {
            poll("the classic one has all", () -> first.partitions.size() == 4, first);
            System.out.println(first);
            second = new Member("new", bootstrap, topic, NEW_PROTOCOL);
            poll("each has two", () -> first.partitions.size() == 2 && second.partitions.size() == 2, first, second);
            System.out.println(first);
            System.out.println(second);
        }
        Member third;
        try (second) {
            poll("the new one has all", () -> second.partitions.size() == 4, second);
            System.out.println(second);
            third = new Member("again", bootstrap, topic, classic);
            poll("each has two", () -> second.partitions.size() == 2 && third.partitions.size() == 2, second, third);
            System.out.println(third);
        }
        try (third) {
            poll("the classic one has all", () -> third.partitions.size() == 4, third);
            System.out.println(third);
        }
    }

    /** Commits an offset with its leader epoch and metadata; another member of the group begins there. */
    private static void commit(String bootstrap, String topic, Map<String, String> settings) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Member member = new Member("first", bootstrap, topic, settings)) {
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            until(() -> {
                member.consumer.poll(POLL).forEach(found::add);
                return found.size() >= 5;
            }, "five records");
            ConsumerRecord<String, String> last = found.get(4);
            OffsetAndMetadata position = new OffsetAndMetadata(last.offset() + 1, last.leaderEpoch(), "noted");
            member.consumer.commitSync(Map.of(partition, position));
            System.out.println("committed " + member.consumer.committed(Set.of(partition)).get(partition));
        }
        try (Member member = new Member("second", bootstrap, topic, settings)) {
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            until(() -> {
                member.consumer.poll(POLL).forEach(found::add);
                return !found.isEmpty();
            }, "the next record");
            System.out.println("went on at " + found.get(0).offset());
        }
    }

    /** Seeks to an offset as of a leader epoch: was that epoch's log ever that long? */
    private static void validate(String bootstrap, String topic, long offset, int leaderEpoch) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, new OffsetAndMetadata(offset, Optional.of(leaderEpoch), ""));
            try {
                until(() -> {
                    for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                        System.out.println("read on at " + record.offset());
                        return true;
                    }
                    return false;
                }, "a record or a truncation");
            } catch (LogTruncationException truncated) {
                OffsetAndMetadata divergent = truncated.divergentOffsets().get(partition);
                int epoch = divergent.leaderEpoch().orElse(-1);
                System.out.println("truncated, divergent at " + divergent.offset() + " of epoch " + epoch);
            }
        }
    }

    /** A transaction, in the newest protocol. */
    private static void transaction(String bootstrap, String topic) {
        Map<String, String> settings = Map.of("transactional.id", topic, "max.block.ms", "10000");
        try (KafkaProducer<String, String> producer = producer(bootstrap, settings)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "key", "value"));
            producer.commitTransaction();
            System.out.println("transactions: committed");
        } catch (KafkaException refused) {
            System.out.println("transactions: " + refused.getClass().getSimpleName() + ": " + refused.getMessage());
        }
    }

    // Admin.

    /** Every call prints a line: its name and what came of it. */
    private static void admin(String bootstrap, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", "10000",
                "default.api.timeout.ms", "20000"));
        Map<String, Callable<Object>> calls = new LinkedHashMap<>();
        try (Admin admin = Admin.create(properties)) {
            calls.put("createTopics", () -> {
                NewTopic asked = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "-1"));
                var created = admin.createTopics(List.of(asked));
                String retention = got(created.config(topic)).get("retention.ms").value();
                return got(created.numPartitions(topic)) + " partitions, " + retention;
            });
            calls.put("createTopics again", () ->
                    got(admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all()));
            calls.put("listTopics", () -> got(admin.listTopics().names()).contains(topic));
            calls.put("describeTopics", () ->
                    got(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size());
            calls.put("createPartitions", () ->
                    got(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
            calls.put("describeTopics then", () -> {
                // Kafka's brokers may know of them a moment after its controller.
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
                int count;
                do {
                    count = got(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
                } while (count < 3 && System.nanoTime() < deadline);
                return count;
            });
            calls.put("describeCluster", () -> got(admin.describeCluster().nodes()).size());
            calls.put("incrementalAlterConfigs", () -> got(admin.incrementalAlterConfigs(Map.of(resource, List.of(
                    new AlterConfigOp(new ConfigEntry("max.message.bytes", "5000"), AlterConfigOp.OpType.SET),
                    new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all()));
            calls.put("incrementalAlterConfigs, unknown", () -> got(admin.incrementalAlterConfigs(Map.of(resource,
                    List.of(new AlterConfigOp(new ConfigEntry("no.such", "1"), AlterConfigOp.OpType.SET)))).all()));
            calls.put("describeConfigs", () -> {
                var entries = got(admin.describeConfigs(List.of(resource)).all()).get(resource);
                return entries.get("max.message.bytes").value() + " " + entries.get("cleanup.policy").value() + " "
                        + entries.get("retention.ms").source() + " " + entries.get("segment.bytes").source();
            });
            calls.put("describeConfigs of a broker", () ->
                    got(admin.describeConfigs(List.of(broker)).all()).get(broker).get("log.dirs") != null);
            calls.put("listConfigResources", () -> got(admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC),
                    new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all()).contains(resource));
            calls.put("produce", () -> {
                try (KafkaProducer<String, String> producer = producer(bootstrap, Map.of())) {
                    for (int i = 0; i < 10; i++) {
                        producer.send(new ProducerRecord<>(topic, 0, 1_000L + i, "key", "value")).get();
                    }
                }
                return 10;
            });
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                    OffsetSpec.forTimestamp(1_004), OffsetSpec.earliestLocal())) {
                calls.put("listOffsets " + spec.getClass().getSimpleName(), () -> {
                    var info = got(admin.listOffsets(Map.of(first, spec)).partitionResult(first));
                    return info.offset() + " at " + info.timestamp();
                });
            }
            calls.put("deleteRecords", () -> got(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4)))
                    .lowWatermarks().get(first)).lowWatermark());
            calls.put("describeLogDirs", () ->
                    got(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).values().stream()
                    .mapToLong(directory -> directory.replicaInfos().get(first).size()).sum() > 0);
            calls.put("describeProducers", () ->
                    got(admin.describeProducers(List.of(first)).all()).get(first).activeProducers().size());
            calls.put("alterConsumerGroupOffsets", () ->
                    got(admin.alterConsumerGroupOffsets(topic, Map.of(first, new OffsetAndMetadata(7))).all()));
            calls.put("listGroups", () ->
                    got(admin.listGroups().all()).stream().filter(group -> group.groupId().equals(topic))
                    .map(group -> group.type().orElseThrow() + " " + group.groupState().orElseThrow()).toList());
            calls.put("describeConsumerGroups", () ->
                    got(admin.describeConsumerGroups(List.of(topic)).all()).get(topic).groupState());
            calls.put("describeClassicGroups", () ->
                    got(admin.describeClassicGroups(List.of(topic)).all()).get(topic).state());
            calls.put("listConsumerGroupOffsets", () ->
                    got(admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata()).get(first).offset());
            calls.put("deleteConsumerGroupOffsets", () ->
                    got(admin.deleteConsumerGroupOffsets(topic, Set.of(first)).all()));
            calls.put("deleteConsumerGroups", () -> got(admin.deleteConsumerGroups(List.of(topic)).all()));
            calls.put("describeFeatures", () ->
                    got(admin.describeFeatures().featureMetadata()).finalizedFeatures().containsKey("metadata.version"));
            calls.put("describeMetadataQuorum", () -> got(admin.describeMetadataQuorum().quorumInfo()).leaderId());
            calls.put("listTransactions", () -> got(admin.listTransactions().all()).size());
            calls.put("deleteTopics", () -> got(admin.deleteTopics(List.of(topic)).all()));
            calls.put("deleteTopics again", () -> got(admin.deleteTopics(List.of(topic)).all()));
            for (Map.Entry<String, Callable<Object>> call : calls.entrySet()) {
                String came;
                try {
                    came = String.valueOf(call.getValue().call());
                } catch (ExecutionException refused) {
                    came = refused.getCause().getClass().getSimpleName();
                } catch (Exception failed) {
                    came = failed.toString();
                }
                System.out.println(call.getKey() + ": " + came);
            }
        }
    }

    private static <T> T got(KafkaFuture<T> future) throws Exception {
        return future.get(SECONDS_MAX, TimeUnit.SECONDS);
    }

    private static void poll(String what, BooleanSupplier reached, Member... members) {
        until(() -> {
            Arrays.stream(members).forEach(member -> member.consumer.poll(POLL));
            return reached.getAsBoolean();
        }, what);
    }

    private static void until(BooleanSupplier reached, String what) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
        while (!reached.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("still not so after " + SECONDS_MAX + " s: " + what);
            }
        }
    }
}
