import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints the facts about Kafka's configuration keys that {@code tests/unit/metadata/kafka-4.3-configs.tsv} holds.
 *
 * <p>{@code java -cp 'peers/kafka/*' tests/support/java/ConfigKeys.java > tests/unit/metadata/kafka-4.3-configs.tsv}
 */
public final class ConfigKeys {
    private ConfigKeys() {}

    public static void main(String[] ignored) {
        System.out.println("scope\tname\ttype\tdefault\tallowed\tchanges");
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        print("broker", AbstractKafkaConfig.CONFIG_DEF, modes);
        print("broker", QuotaConfig.brokerQuotaConfigs(), modes); // in no file: they are set while brokers run only
        print("topic", LogConfig.configDefCopy(), Map.of());
    }

    private static void print(String scope, ConfigDef keys, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys.configKeys()).values()) {
            if (key.internalConfig) {
                continue;
            }
            String text = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            String mode = scope.equals("topic") ? "per-topic" : modes.getOrDefault(key.name, "read-only");
            String allowed = key.validator == null ? "" : key.validator.toString().replaceAll("\\s+", " ");
            System.out.println(String.join("\t", scope, key.name, key.type.name(), String.valueOf(text), allowed, mode));
        }
    }
}
