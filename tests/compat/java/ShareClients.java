import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What Java's share consumers do, one story a command: `STORY BOOTSTRAP TOPIC`. What happened goes to stdout. */
public final class ShareClients {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long SECONDS_MAX = 40;

    private ShareClients() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        String topic = arguments[2];
        String group = "share-" + topic;
        fromTheEarliest(bootstrap, group);
        switch (arguments[0]) {
            case "implicit" -> implicit(bootstrap, topic, group);
            case "explicit" -> explicit(bootstrap, topic, group);
            case "two" -> twoMembers(bootstrap, topic, group);
            case "time-out" -> lockTimesOut(bootstrap, topic, group);
            case "limit" -> deliveryCountLimit(bootstrap, topic, group);
            case "closed" -> closed(bootstrap, topic, group);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void fromTheEarliest(String bootstrap, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            AlterConfigOp earliest = new AlterConfigOp(
                    new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
    }

    /** Each record is a batch of its own. */
    private static void produce(String bootstrap, String topic, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, "v" + i)).get();
            }
        }
    }

    private static final class Member implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> last = new ArrayList<>();
        final List<String> errors = new ArrayList<>();

        Member(String bootstrap, String topic, String group, Map<String, String> more) {
            Properties properties = new Properties();
            properties.putAll(Map.of("bootstrap.servers", bootstrap, "group.id", group));
            properties.putAll(more);
            consumer = new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    errors.add(error.getClass().getSimpleName());
                }
            });
            consumer.subscribe(List.of(topic));
        }

        /** What came with the next poll. */
        List<ConsumerRecord<String, String>> poll() {
            last.clear();
            consumer.poll(POLL).forEach(last::add);
            return last;
        }

        /** Commit what was acknowledged. Returns whether all of it was taken. */
        boolean commit() {
            Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
            return outcome.values().stream().noneMatch(Optional::isPresent);
        }

        @Override
        public void close() {
            consumer.close(Duration.ofSeconds(5));
        }
    }

    private static final Map<String, String> EXPLICIT = Map.of("share.acknowledgement.mode", "explicit");

    private static String told(ConsumerRecord<String, String> record) {
        return record.value() + "*" + record.deliveryCount().map(String::valueOf).orElse("?");
    }

    private static void implicit(String bootstrap, String topic, String group) throws Exception {
        produce(bootstrap, topic, 4);
        Set<String> read = new TreeSet<>();
        try (Member member = new Member(bootstrap, topic, group, Map.of())) {
            until(() -> {
                member.poll().forEach(record -> read.add(told(record)));
                return read.size() == 4;
            }, "all is read");
            member.poll();
            System.out.println("committed " + member.commit());
        }
        System.out.println("read " + read);
        produce(bootstrap, topic, 1);
        Set<String> later = new TreeSet<>();
        try (Member member = new Member(bootstrap, topic, group, Map.of())) {
            until(() -> {
                member.poll().forEach(record -> later.add(told(record)));
                return !later.isEmpty();
            }, "the new one is read");
        }
        System.out.println("then " + later);
    }

    private static void explicit(String bootstrap, String topic, String group) throws Exception {
        produce(bootstrap, topic, 4);
        try (Member member = new Member(bootstrap, topic, group, EXPLICIT)) {
            Set<String> read = new TreeSet<>();
            until(() -> {
                for (ConsumerRecord<String, String> record : member.poll()) {
                    read.add(told(record));
                    member.consumer.acknowledge(record, switch (record.value()) {
                        case "v1" -> AcknowledgeType.REJECT;
                        case "v2" -> AcknowledgeType.RELEASE;
                        default -> AcknowledgeType.ACCEPT;
                    });
                }
                member.commit();
                return read.size() == 4;
            }, "all is read");
            System.out.println("read " + read);
            Set<String> again = new TreeSet<>();
            until(() -> {
                for (ConsumerRecord<String, String> record : member.poll()) {
                    again.add(told(record));
                    member.consumer.acknowledge(record);
                }
                return !again.isEmpty();
            }, "what was released comes again");
            System.out.println("again " + again + ", committed " + member.commit() + ", errors " + member.errors);
        }
    }

    private static void twoMembers(String bootstrap, String topic, String group) throws Exception {
        Map<String, String> few = Map.of("max.poll.records", "1", "share.acquire.mode", "record_limit");
        try (Member first = new Member(bootstrap, topic, group, few);
                Member second = new Member(bootstrap, topic, group, few)) {
            List<Member> members = List.of(first, second);
            List<Set<String>> read = List.of(new HashSet<>(), new HashSet<>());
            Set<String> all = new TreeSet<>();
            int[] sent = {0};
            until(() -> {
                try {
                    produce(bootstrap, topic, 2);
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
                sent[0] += 2;
                for (int i = 0; i < 2; i++) {
                    Set<String> its = read.get(i);
                    members.get(i).poll().forEach(record -> its.add(record.offset() + told(record)));
                }
                return read.stream().noneMatch(Set::isEmpty);
            }, "both read");
            until(() -> {
                for (int i = 0; i < 2; i++) {
                    Set<String> its = read.get(i);
                    members.get(i).poll().forEach(record -> its.add(record.offset() + told(record)));
                }
                all.clear();
                read.forEach(all::addAll);
                return all.size() >= sent[0];
            }, "all is read");
            System.out.println("every record once " + (all.size() == sent[0]
                    && read.get(0).size() + read.get(1).size() == all.size()));
        }
    }

    private static void lockTimesOut(String bootstrap, String topic, String group) throws Exception {
        produce(bootstrap, topic, 1);
        try (Member slow = new Member(bootstrap, topic, group, EXPLICIT)) {
            until(() -> !slow.poll().isEmpty(), "it is read");
            ConsumerRecord<String, String> record = slow.last.get(0);
            System.out.println("slow has " + told(record));
            try (Member fast = new Member(bootstrap, topic, group, EXPLICIT)) {
                until(() -> !fast.poll().isEmpty(), "the other one gets it");
                System.out.println("fast has " + told(fast.last.get(0)));
                fast.consumer.acknowledge(fast.last.get(0));
                System.out.println("fast commits " + fast.commit());
            }
            slow.consumer.acknowledge(record);
            System.out.println("slow commits " + slow.commit() + " " + slow.errors);
        }
    }

    private static void deliveryCountLimit(String bootstrap, String topic, String group) throws Exception {
        produce(bootstrap, topic, 1);
        List<String> read = new ArrayList<>();
        try (Member member = new Member(bootstrap, topic, group, EXPLICIT)) {
            until(() -> {
                for (ConsumerRecord<String, String> record : member.poll()) {
                    read.add(told(record));
                    member.consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
                member.commit();
                return read.size() == 3;
            }, "it is delivered three times");
            produce(bootstrap, topic, 2);
            until(() -> {
                for (ConsumerRecord<String, String> record : member.poll()) {
                    read.add(record.offset() + ":" + told(record));
                    member.consumer.acknowledge(record);
                }
                member.commit();
                return read.size() >= 5;
            }, "what comes later is delivered");
        }
        System.out.println("read " + read);
    }

    /** Who closes gives back what it has not acknowledged. */
    private static void closed(String bootstrap, String topic, String group) throws Exception {
        produce(bootstrap, topic, 1);
        try (Member first = new Member(bootstrap, topic, group, EXPLICIT)) {
            until(() -> !first.poll().isEmpty(), "it is read");
            System.out.println("first has " + told(first.last.get(0)));
        }
        try (Member second = new Member(bootstrap, topic, group, EXPLICIT)) {
            until(() -> !second.poll().isEmpty(), "it is read again");
            System.out.println("second has " + told(second.last.get(0)));
        }
    }

    private static void until(BooleanSupplier reached, String what) {
        long deadline = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
        while (!reached.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("timed out before " + what);
            }
        }
    }
}
